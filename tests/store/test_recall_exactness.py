"""Recall over a real store equals the formula over its current memories, whoever wrote them."""

import contextlib
import random
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from cavemem_mcp import bm25, terms
from cavemem_mcp.model import SCORE_THRESHOLD, Memory, memory_id, timestamp
from cavemem_mcp.store import Transaction
from cavemem_mcp.store.sqlite import FILE_NAME, SqliteStore
from tests import bm25_oracle
from tests.facts import CountingFacts
from tests.store.foreign import ForeignProgram

NOW = timestamp(0)
WORDS = [
    *(f"word{number}" for number in range(40)),
    "数据库",
    "数据",
    "库",
    "データベース設定",
    "데이터베이스",
    "ฐานข้อมูล",
    "ကွန်ပျူတာ",
    "gen后端",
    "naïve",
    "2026",
]
INSERT = "INSERT INTO memories(id, text, created_at, valid_from) VALUES (?, ?, ?, ?)"


class Edits:
    """Random edits of a store, by the store itself and by a foreign program; `current` is what must be found."""

    def __init__(self, seed: int, store: SqliteStore, foreign: ForeignProgram) -> None:
        self._random = random.Random(seed)
        self._store = store
        self._foreign = foreign
        self._weights = [(number + 1) ** -self._random.choice([0.5, 1.5]) for number in range(len(WORDS))]
        self.current: dict[str, str] = {}

    def text(self, words_max: int) -> str:
        return " ".join(self._random.choices(WORDS, self._weights, k=self._random.randint(1, words_max)))

    def edit(self) -> None:
        edits = [self.remember, self.remember, self.foreign_insert]
        if self.current:
            edits += [self.supersede, self.forget, self.foreign_expire, self.foreign_delete, self.foreign_update]
        self._random.choice(edits)()

    def remember(self) -> None:
        memories = [self._memory(text) for text in {self.text(8) for _ in range(self._random.choice([1, 30]))}]
        memories = [memory for memory in memories if memory.id not in self.current]

        def work(transaction: Transaction) -> None:
            for memory in memories:
                if transaction.memory(memory.id) is None:
                    transaction.insert(memory)
                    self.current[memory.id] = memory.text

        self._store.write(work)

    def supersede(self) -> None:
        old, new = self._any(), self._memory(self.text(8))

        def work(transaction: Transaction) -> None:
            if transaction.memory(new.id) is None:
                transaction.expire(old, valid_until=NOW, superseded_by=new.id)
                transaction.insert(new)
                del self.current[old]
                self.current[new.id] = new.text

        self._store.write(work)

    def forget(self) -> None:
        id = self._any()
        self._store.write(lambda transaction: transaction.delete(id))
        del self.current[id]

    def foreign_insert(self) -> None:
        text = self.text(8)
        self._foreign.run(INSERT.replace("INSERT", "INSERT OR REPLACE"), memory_id(text), text, NOW, NOW)
        self.current[memory_id(text)] = text

    def foreign_expire(self) -> None:
        id = self._any()
        self._foreign.run("UPDATE memories SET valid_until = ? WHERE id = ?", NOW, id)
        del self.current[id]

    def foreign_delete(self) -> None:
        id = self._any()
        self._foreign.run("DELETE FROM memories WHERE id = ?", id)
        del self.current[id]

    def foreign_update(self) -> None:
        id, text = self._any(), self.text(8)
        self._foreign.run("UPDATE memories SET text = ? WHERE id = ?", text, id)
        self.current[id] = text

    def _any(self) -> str:
        return self._random.choice(sorted(self.current))

    def _memory(self, text: str) -> Memory:
        return Memory(id=memory_id(text), text=text, created_at=NOW, valid_from=NOW)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 40), limit=st.sampled_from([1, 5, 1000]))
def test_recall_is_exact_after_any_edits_by_anyone(seed: int, steps: int, limit: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "mem"
        with contextlib.closing(SqliteStore(folder)) as store, ForeignProgram(folder / FILE_NAME) as foreign:
            edits = Edits(seed, store, foreign)
            for _ in range(steps):
                edits.edit()
                query = edits.text(6)
                with store.read() as snapshot:
                    ranking = bm25.rank(snapshot, terms.query_terms(query), limit=limit, threshold=SCORE_THRESHOLD)
                assert ranking == bm25_oracle.rank(edits.current, query, limit=limit, threshold=SCORE_THRESHOLD)


def test_pruning_spares_a_store_with_pending_rows_too(tmp_path: Path) -> None:
    rng = random.Random(3)
    texts = {
        f"common {'rare ' * (number % 100 == 0)}{rng.randrange(10**6)} " + "x " * rng.randrange(9)
        for number in range(3000)
    }
    memories = {memory_id(text): text for text in texts}
    with contextlib.closing(SqliteStore(tmp_path / "mem")) as store:
        rows = [Memory(id=id, text=text, created_at=NOW, valid_from=NOW) for id, text in memories.items()]
        for begin in range(0, len(rows), 1000):
            store.write(
                lambda transaction, begin=begin: [transaction.insert(row) for row in rows[begin : begin + 1000]]
            )
        with ForeignProgram(tmp_path / "mem" / FILE_NAME) as foreign:
            foreign.run(INSERT, memory_id("common rare"), "common rare", NOW, NOW)
            foreign.run("DELETE FROM memories WHERE id = ?", rows[0].id)
        memories = {**memories, memory_id("common rare"): "common rare"}
        del memories[rows[0].id]

        with store.read() as snapshot:
            facts = CountingFacts(snapshot)
            ranking = bm25.rank(facts, ["common", "rare"], limit=5, threshold=SCORE_THRESHOLD)

    assert ranking == bm25_oracle.rank(memories, "common rare", limit=5, threshold=SCORE_THRESHOLD)
    assert facts.postings_read < 300
