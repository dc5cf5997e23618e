"""The facts that ranking reads are those of the current memories, whoever wrote them and whatever they contain.

Random edits, ours and another program's, run against a store; after each, everything the snapshot says is compared
with what a fresh look at the rows gives.
"""

import logging
import tempfile
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cavemem_mcp.bm25 import LENGTH_BITS, Facts, Totals, rank
from cavemem_mcp.errors import StoreError
from cavemem_mcp.model import Memory, memory_id
from cavemem_mcp.recovery import RecoveryStore
from cavemem_mcp.service import Cavemem
from cavemem_mcp.store import Transaction
from cavemem_mcp.store.index import ROWS_SETTLED_AT_ONCE, one
from cavemem_mcp.store.sqlite import SqliteStore
from cavemem_mcp.terms import document_terms
from tests.store.foreign import ForeignProgram

WORDS = ["ant", "bee", "cat", "dog", "elk", "后天", "東京都", "ภาษา", "the", "ÅNGSTRÖM", "x" * 300]
INVALID_UTF8 = "CAST(x'ff41' AS TEXT)"
texts = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
odd_texts = st.one_of(texts, st.just(None), st.binary(max_size=6), texts.map(str.encode), st.integers(0, 9))


AllFacts = tuple[Totals, dict[str, int], dict[str, dict[str, tuple[int, int]]]]


def memory(text: str, **others: Any) -> Memory:
    return Memory(id=memory_id(text), text=text, created_at="t0", valid_from="t0", **others)


def remember(store: SqliteStore, *texts: str) -> None:
    def work(transaction: Transaction) -> None:
        for text in texts:
            transaction.insert(memory(text))

    store.write(work)


def facts_by_id(facts: Facts, terms: Iterable[str]) -> AllFacts:
    """Read everything ranking could ask, with ids in place of document numbers."""
    terms = list(terms)
    postings: dict[str, dict[str, tuple[int, int]]] = {}
    for term in terms:
        of_term = list(facts.postings(term))
        ids = facts.ids([document for document, _ in of_term])
        postings[term] = {ids[document]: divmod(occurrence, 1 << LENGTH_BITS) for document, occurrence in of_term}
        assert len(postings[term]) == len(of_term), "a document has two postings of one term"
    return facts.totals(), dict(facts.document_frequencies(terms)), postings


def facts_from_rows(another: ForeignProgram, terms: Iterable[str]) -> AllFacts:
    """Compute the same from the rows alone."""
    rows = another.run(
        "SELECT CAST(id AS BLOB), CAST(text AS BLOB) FROM memories WHERE valid_until IS NULL AND typeof(id) = 'text'"
    )
    documents = {
        id.decode("utf-8", "replace"): document_terms((text or b"").decode("utf-8", "replace")) for id, text in rows
    }
    postings = {
        term: {id: (found[0][term], found[1]) for id, found in documents.items() if term in found[0]} for term in terms
    }
    totals = Totals(len(documents), sum(found.length for found in documents.values()))
    return totals, {term: len(found) for term, found in postings.items() if found}, postings


VOCABULARY = sorted({term for word in WORDS for term in document_terms(word).frequencies} | {"absent", "fox"})


def check_facts(store: SqliteStore, another: ForeignProgram) -> None:
    with store.read() as snapshot:
        assert facts_by_id(snapshot, VOCABULARY) == facts_from_rows(another, VOCABULARY)


class Edits(RuleBasedStateMachine):
    """Our edits and another program's, in any order, on a table without the constraints of ours."""

    @initialize()
    def begin(self) -> None:
        self._scratch = tempfile.TemporaryDirectory()
        self.folder = Path(self._scratch.name)
        self.another = ForeignProgram(self.folder / "mem.db")
        self.another.run(
            "CREATE TABLE memories(id TEXT PRIMARY KEY, text, created_at, valid_from, valid_until, supersedes,"
            " superseded_by, extra)"
        )
        self.another.run("INSERT INTO memories(id, text, extra) VALUES ('mem_0', 'ant bee', 'kept')")
        self.store = SqliteStore(self.folder)

    def teardown(self) -> None:
        self.store.close()
        self.another.close()
        self._scratch.cleanup()

    def _ids(self, where: str = "true") -> list[str]:
        valid = f"typeof(id) = 'text' AND id <> {INVALID_UTF8} AND {where}"
        return [id for (id,) in self.another.run(f"SELECT id FROM memories WHERE {valid} ORDER BY id")]

    def _run(self, work: Callable[[Transaction], None]) -> None:
        self.store.write(work)

    @rule(text=texts)
    def we_remember(self, text: str) -> None:
        if memory_id(text) not in self._ids():
            self._run(lambda transaction: transaction.insert(memory(text)))

    @rule(text=texts, data=st.data())
    def we_supersede(self, text: str, data: st.DataObject) -> None:
        current = self._ids("valid_until IS NULL")
        if current and memory_id(text) not in self._ids():
            target = data.draw(st.sampled_from(current))

            def work(transaction: Transaction) -> None:
                transaction.expire(target, valid_until="t1", superseded_by=memory_id(text))
                transaction.insert(memory(text, supersedes=target))

            self._run(work)

    @rule(data=st.data())
    def we_forget(self, data: st.DataObject) -> None:
        if ids := self._ids():
            target = data.draw(st.sampled_from(ids))
            self._run(lambda transaction: transaction.delete(target))

    @rule(text=texts)
    def we_fail(self, text: str) -> None:
        def work(transaction: Transaction) -> None:
            for id in self._ids("valid_until IS NULL"):
                transaction.delete(id)
            transaction.insert(memory(text + " fox"))
            raise RuntimeError("undo this")

        with pytest.raises(RuntimeError, match="undo this"):
            self._run(work)

    @rule()
    def we_write_nothing(self) -> None:
        self._run(lambda transaction: None)

    @rule()
    def we_reopen(self) -> None:
        self.store.close()
        self.store = SqliteStore(self.folder)

    @rule(
        id=st.sampled_from(["mem_1", "odd \x00 id", "ü"]),
        text=odd_texts,
        until=st.sampled_from([None, None, "t", b"t"]),
    )
    def another_inserts(self, id: str, text: object, until: object) -> None:
        self.another.run("INSERT OR REPLACE INTO memories(id, text, valid_until) VALUES (?, ?, ?)", id, text, until)

    @rule(sql=st.sampled_from([INVALID_UTF8, "x'ff41'", "NULL"]), text=odd_texts)
    def another_inserts_an_id_that_is_no_text(self, sql: str, text: object) -> None:
        self.another.run(f"INSERT OR REPLACE INTO memories(id, text) VALUES ({sql}, ?)", text)

    @rule(data=st.data(), text=odd_texts)
    def another_edits(self, data: st.DataObject, text: object) -> None:
        target = data.draw(st.sampled_from([*self._ids(), "none"]))
        change = data.draw(
            st.sampled_from(["text = ?", "valid_until = ?", "valid_until = NULL, extra = ?", "id = 'mem_2', extra = ?"])
        )
        self.another.run(f"UPDATE OR REPLACE memories SET {change} WHERE id = ?", text, target)

    @rule(data=st.data())
    def another_deletes(self, data: st.DataObject) -> None:
        self.another.run("DELETE FROM memories WHERE id = ?", data.draw(st.sampled_from([*self._ids(), "none"])))

    @rule()
    def another_vacuums(self) -> None:
        self.another.run("VACUUM")

    @invariant()
    def the_facts_are_those_of_the_rows(self) -> None:
        check_facts(self.store, self.another)


TestEdits = Edits.TestCase
TestEdits.settings = settings(
    max_examples=30,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.fixture
def another(store: SqliteStore, folder: Path) -> Generator[ForeignProgram]:
    with ForeignProgram(folder / "mem.db") as another:
        yield another


def words_of_index(another: ForeignProgram) -> set[str]:
    return {term for (term,) in another.run("SELECT term FROM idx_terms")}


def pending_count(another: ForeignProgram) -> int:
    return another.run("SELECT count(*) FROM idx_pending")[0][0]


def test_our_writes_leave_nothing_pending(store: SqliteStore, another: ForeignProgram) -> None:
    remember(store, "ant bee", "bee cat")
    store.write(lambda transaction: transaction.delete(memory_id("ant bee")))

    assert pending_count(another) == 0


def test_a_term_leaves_the_index_with_its_last_memory(store: SqliteStore, another: ForeignProgram) -> None:
    remember(store, "ant bee", "bee cat")

    store.write(lambda transaction: transaction.delete(memory_id("ant bee")))

    assert words_of_index(another) == {"bee", "cat"}


def test_a_superseded_memory_leaves_the_index(store: SqliteStore, another: ForeignProgram) -> None:
    remember(store, "ant bee")

    store.write(
        lambda transaction: transaction.expire(memory_id("ant bee"), valid_until="t1", superseded_by="mem_other")
    )

    assert words_of_index(another) == set()
    check_facts(store, another)


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO memories(id, text, created_at, valid_from) VALUES ('x', 'cat dog', '', '')",
        "UPDATE memories SET text = 'dog dog fox'",
        "UPDATE memories SET valid_until = 't1'",
        "DELETE FROM memories",
    ],
)
def test_an_edit_of_another_program_is_right_at_the_very_next_read(
    store: SqliteStore, another: ForeignProgram, sql: str
) -> None:
    remember(store, "ant bee", "bee cat")

    another.run(sql)

    check_facts(store, another)


def test_reading_needs_no_lock_while_another_program_writes(store: SqliteStore, another: ForeignProgram) -> None:
    remember(store, "ant bee")
    another.run("UPDATE memories SET text = 'ant cat'")
    another.run("BEGIN IMMEDIATE")

    with store.read() as snapshot:
        assert facts_by_id(snapshot, ["cat"])[2] == {"cat": {memory_id("ant bee"): (1, 2)}}


def test_a_snapshot_does_not_see_what_is_written_after_its_first_answer(
    store: SqliteStore, another: ForeignProgram
) -> None:
    remember(store, "ant bee")
    with store.read() as snapshot:
        before = facts_by_id(snapshot, VOCABULARY)

        another.run("DELETE FROM memories")
        remember(store, "cat")

        assert facts_by_id(snapshot, VOCABULARY) == before
    check_facts(store, another)


def test_one_write_settles_rows_of_others_only_for_a_moment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cavemem_mcp.store.index.SETTLE_SECONDS_MAX", 0)
    folder.mkdir(parents=True)
    with ForeignProgram(folder / "mem.db") as another:
        another.run("CREATE TABLE memories(id TEXT PRIMARY KEY, text TEXT NOT NULL, created_at TEXT NOT NULL)")
        rows = ROWS_SETTLED_AT_ONCE * 2 + 5
        another.run(
            "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < ?)"
            " INSERT INTO memories SELECT 'mem_' || i, 'ant ' || i, 't' FROM s",
            rows,
        )
        store = SqliteStore(folder)

        pending = [pending_count(another)]
        for _ in range(3):
            store.write(lambda transaction: None)
            pending.append(pending_count(another))
            check_facts(store, another)
        store.close()

    assert pending == [rows, ROWS_SETTLED_AT_ONCE + 5, 5, 0]


def test_another_version_of_the_term_rules_indexes_everything_anew(
    store: SqliteStore, folder: Path, another: ForeignProgram
) -> None:
    remember(store, "ant bee", "bee cat")
    another.run("UPDATE idx_meta SET value = 'older rules'")
    another.run("UPDATE idx_terms SET term = upper(term)")

    with closing(SqliteStore(folder)) as reopened:
        check_facts(reopened, another)
        reopened.write(lambda transaction: None)
        assert words_of_index(another) == {"ant", "bee", "cat"}
        check_facts(reopened, another)


CONTRADICTIONS = [
    "DELETE FROM idx_docs",
    "DELETE FROM idx_postings",
    "DELETE FROM idx_terms",
    "UPDATE idx_totals SET n = 0, dl_sum = 0",
    "DELETE FROM idx_totals",
    "INSERT INTO idx_totals VALUES (0, 0)",
    "UPDATE idx_docs SET dl = 7",
    "UPDATE idx_docs SET dl = 'seven'",
]


@pytest.mark.parametrize("sql", CONTRADICTIONS)
def test_an_index_that_contradicts_the_memories_is_rebuilt_by_a_write(
    store: SqliteStore, another: ForeignProgram, caplog: pytest.LogCaptureFixture, sql: str
) -> None:
    remember(store, "ant bee", "bee cat")
    rows = another.run("SELECT * FROM memories WHERE text = 'bee cat'")

    another.run(sql)
    store.write(lambda transaction: transaction.delete(memory_id("ant bee")))
    remember(store, "dog")
    store.write(lambda transaction: None)

    check_facts(store, another)
    assert another.run("SELECT * FROM memories WHERE text = 'bee cat'") == rows
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE idx_terms SET df = 1000",
        "DELETE FROM idx_docs",
        "UPDATE idx_totals SET n = 0",
        "UPDATE idx_totals SET n = -1",
        "UPDATE idx_totals SET n = 'two'",
        "INSERT INTO idx_totals VALUES (2, 4)",
        "DELETE FROM idx_totals",
        "UPDATE idx_terms SET df = 'two'",
        "UPDATE idx_totals SET dl_sum = 0",
        "INSERT INTO idx_totals VALUES (0, 0)",
    ],
)
def test_an_index_seen_to_be_wrong_by_a_reader_is_rebuilt_and_the_next_read_is_right(
    store: SqliteStore, another: ForeignProgram, caplog: pytest.LogCaptureFixture, sql: str
) -> None:
    remember(store, "ant bee", "bee cat")
    another.run(sql)

    with pytest.raises(StoreError, match="rebuilt from the memories; repeat"), store.read() as snapshot:
        rank(snapshot, ["bee"], limit=5, threshold=0.0)

    check_facts(store, another)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.parametrize("found", [None, [("a", 1), ("a", 2)]])
def test_other_than_one_row_under_a_unique_key_is_damage(found: object) -> None:
    with pytest.raises(apsw.CorruptError):
        one(found)


@pytest.mark.parametrize("sql", ["DROP TRIGGER idx_memory_inserted", "DROP TABLE idx_docs", "DROP TABLE idx_totals"])
def test_an_index_with_a_missing_part_is_rebuilt_at_the_next_open(
    store: SqliteStore, folder: Path, another: ForeignProgram, sql: str
) -> None:
    remember(store, "ant bee")
    another.run(sql)
    if "TRIGGER" in sql:
        another.run("INSERT INTO memories(id, text, created_at, valid_from) VALUES ('x', 'cat dog', '', '')")

    with closing(SqliteStore(folder)) as reopened:
        check_facts(reopened, another)


def test_an_index_that_does_not_count_the_memories_is_rebuilt_at_the_next_open(
    store: SqliteStore, folder: Path, another: ForeignProgram, caplog: pytest.LogCaptureFixture
) -> None:
    remember(store, "ant bee", "bee cat")
    another.run("INSERT INTO memories(id, text, created_at, valid_from) VALUES ('x', 'cat dog', '', '')")
    another.run("DELETE FROM idx_pending")  # as if the triggers had been off

    with closing(SqliteStore(folder)) as reopened:
        check_facts(reopened, another)

    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    caplog.clear()
    SqliteStore(folder).close()
    assert not caplog.records


def test_odd_rows_do_not_break_the_recall_of_others(store: SqliteStore, folder: Path, another: ForeignProgram) -> None:
    remember(store, "ant bee")
    insert = "INSERT INTO memories(id, text, created_at, valid_from, superseded_by) VALUES "
    another.run(insert + "('no hash', x'ff61', x'ff', 5, 'dangling')")
    another.run(insert + "(NULL, 'ant', '', '', NULL)")
    another.run(insert + "(x'ff', 'ant', '', '', NULL)")
    another.run(insert + f"({INVALID_UTF8}, CAST(x'ff616e74' AS TEXT), '', '', NULL)")
    another.run(insert + "('big', ?, '', '', NULL)", "ant " * 100_000)

    cavemem = Cavemem(store, RecoveryStore(folder))
    for _ in range(2):  # pending first, indexed then
        assert memory_id("ant bee") in [hit.id for hit in cavemem.recall("bee").hits]
        check_facts(store, another)
        store.write(lambda transaction: None)
    with store.read() as snapshot:
        odd = snapshot.memory("no hash")
    assert odd == Memory(id="no hash", text="�a", created_at="�", valid_from="5", superseded_by="dangling")
