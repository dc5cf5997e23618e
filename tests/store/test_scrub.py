"""Forgetting is real: no byte of a forgotten text stays in any file of the folder, nor a word that only it had."""

import random
import re
import string
from collections.abc import Generator, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import cast

import apsw
import pytest

from cavemem_mcp.errors import OperationFailedError
from cavemem_mcp.model import MEMORY_BYTES_MAX, recovery_handle
from cavemem_mcp.recovery import RecoveryStore
from cavemem_mcp.service import Cavemem
from cavemem_mcp.store import Transaction, files, scrub
from cavemem_mcp.store.sqlite import SqliteStore
from tests.store.connections import writer_of
from tests.store.foreign import ForeignProgram


@pytest.fixture
def cavemem(folder: Path) -> Generator[Cavemem]:
    with closing(Cavemem(SqliteStore(folder), RecoveryStore(folder))) as cavemem:
        yield cavemem


def words(count: int, seed: int) -> list[str]:
    """Make words so long that no two texts share one by chance."""
    source = random.Random(seed)
    return ["".join(source.choices(string.ascii_lowercase, k=source.randint(14, 20))) for _ in range(count)]


def delete(transaction: Transaction, id: str) -> None:
    transaction.delete(id)


def found_in_files(folder: Path, *texts: str) -> set[str]:
    contents = [path.read_bytes() for path in folder.iterdir()]
    return {text[:40] for text in texts if any(text.encode() in content for content in contents)}


def unexpected_letters(folder: Path, texts: Iterable[str]) -> str:
    """Return the runs of letters in the files that are no words of the texts."""
    contents = b"".join(path.read_bytes() for path in folder.iterdir()).decode("latin-1")
    return " ".join(set(re.findall("[a-z]+", contents)) - {word for text in texts for word in text.split()})


LONG = " ".join(words(12_000, seed=1))
TEXTS = {
    "short": " ".join(words(8, seed=2)),
    "several_pages": " ".join(words(800, seed=3)),
    "largest": LONG[: MEMORY_BYTES_MAX - 1],
    "one_unbroken_term": "".join(words(20_000, seed=4))[:MEMORY_BYTES_MAX],
    "spaceless_script": "".join(map(chr, random.Random(5).sample(range(0x4E00, 0x9FA0), 3000))),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_a_forgotten_text_is_in_no_file(cavemem: Cavemem, folder: Path, text: str) -> None:
    for number in range(20):
        cavemem.remember(f"neighbour {number} " + " ".join(words(10, seed=100 + number)))
    id = cavemem.remember(text).id
    (hit,) = cavemem.recall(text, token_budget=5, limit=1).hits
    assert hit.id == id
    assert found_in_files(folder, text[:20])

    cavemem.forget(id)

    pieces = {text[at : at + (20 if text.isascii() else 2)] for at in range(0, len(text) - 20, 300)}
    assert not found_in_files(folder, *text.split()[::10], text.split()[-1], *pieces)
    assert all(len(cavemem.recall(f"neighbour {number}").hits) == 1 for number in range(20))


@pytest.mark.parametrize("forgotten", [0, 1, 2])
def test_a_forgotten_version_of_a_chain_is_in_no_file(cavemem: Cavemem, folder: Path, forgotten: int) -> None:
    texts = [" ".join(words(200, seed=seed)) for seed in range(3)]
    ids = [cavemem.remember(texts[0]).id]
    for text in texts[1:]:
        ids.append(cavemem.supersede(ids[-1], text).id)

    cavemem.forget(ids[forgotten])

    assert not found_in_files(folder, *texts.pop(forgotten).split())
    assert found_in_files(folder, *texts) == {text[:40] for text in texts}


def test_an_idle_process_does_not_keep_a_forgotten_text_in_the_files(cavemem: Cavemem, folder: Path) -> None:
    text = TEXTS["several_pages"]
    id = cavemem.remember(text).id
    with ForeignProgram(folder / "mem.db") as idle, closing(SqliteStore(folder)) as reader:
        idle.run("SELECT * FROM memories")
        with reader.read() as snapshot:
            assert snapshot.memory(id) is not None

        cavemem.forget(id)

        assert not found_in_files(folder, *text.split())


def test_a_forget_beside_a_long_reader_succeeds_and_the_next_one_scrubs(
    cavemem: Cavemem, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(files, "BUSY_MS_MAX", 100)
    texts = [" ".join(words(50, seed=seed)) for seed in range(2)]
    ids = [cavemem.remember(text).id for text in texts]
    with ForeignProgram(folder / "mem.db") as reader:
        reader.run("BEGIN")
        reader.run("SELECT count(*) FROM memories")

        assert cavemem.forget(ids[0]).forgotten

        assert cavemem.history(ids[1]).history
        assert "scrubbed later" in caplog.text
        reader.run("COMMIT")
    cavemem.forget(ids[1])

    assert not found_in_files(folder, *texts[0].split(), *texts[1].split())


def test_no_word_survives_in_pages_that_were_rebalanced(folder: Path) -> None:
    source = random.Random(3)  # `secure_delete` alone leaves 11 words then
    forgotten: list[str] = []
    with closing(SqliteStore(folder)) as store, closing(Cavemem(store, RecoveryStore(folder))) as cavemem:
        # Many short transactions would spend the time on syncing, which is not what is tested.
        writer_of(store).pragma("synchronous", 0)
        current: dict[str, str] = {}
        for step in range(700):
            text = " ".join(words(source.randint(3, 40), seed=1000 + step))
            choice = source.random()
            if choice < 0.6 or not current:
                current[cavemem.remember(text).id] = text
            else:
                id = source.choice(list(current))
                old = current.pop(id)
                if choice < 0.8:
                    current[cavemem.supersede(id, text).id] = text
                store.write(partial(delete, id=id))
                forgotten += old.split()
        last = next(iter(current))
        forgotten += current.pop(last).split()

        cavemem.forget(last)

        unexpected = unexpected_letters(folder, current.values())
        assert [word for word in forgotten if word in unexpected] == []
        for step in range(30):  # what connections remember of old pages must not come back with later writes
            current[str(step)] = " ".join(words(10, seed=5000 + step))
            cavemem.remember(current[str(step)])
        unexpected = unexpected_letters(folder, current.values())
        assert [word for word in forgotten if word in unexpected] == []
        assert writer_of(store).pragma("integrity_check") == "ok"
        assert all(cavemem.recall(text.split()[0]).hits for text in current.values())


@pytest.mark.parametrize("analyzer", ["ANALYZE", "PRAGMA optimize = 0x10002"])
def test_statistics_of_the_index_keep_no_word(folder: Path, cavemem: Cavemem, analyzer: str) -> None:
    text = " ".join(words(30, seed=1))
    id = cavemem.remember(text).id
    with closing(files.connect(folder / "mem.db")) as another:
        another.execute(analyzer)

    cavemem.forget(id)

    assert not found_in_files(folder, *text.split())


@pytest.mark.parametrize("auto_vacuum", ["NONE", "FULL", "INCREMENTAL"])
@pytest.mark.parametrize("page_size", [512, 4096, 65536])
def test_what_other_programs_deleted_carelessly_is_scrubbed_too(folder: Path, page_size: int, auto_vacuum: str) -> None:
    folder.mkdir(parents=True)
    texts = [" ".join(words(count, seed=count)) for count in (3, 30, 300, 1000)]
    with ForeignProgram(folder / "mem.db") as another:
        another.run(f"PRAGMA page_size = {page_size}")
        another.run(f"PRAGMA auto_vacuum = {auto_vacuum}")
        another.run("PRAGMA secure_delete = OFF")
        another.run("CREATE TABLE memories(id TEXT PRIMARY KEY, text TEXT NOT NULL, created_at TEXT NOT NULL)")
        SqliteStore(folder).close()
        insert = "INSERT INTO memories(id, text, created_at) VALUES (?, ?, '')"
        for number in range(50):
            another.run(insert, f"stays {number}", f"stays {number} " * 20 * number)
            if number < len(texts):
                another.run(insert, f"goes {number}", texts[number])
        another.run("DELETE FROM memories WHERE id LIKE 'goes%'")
        assert found_in_files(folder, *texts[-1].split()) or auto_vacuum == "FULL"  # which shortens the file

        with closing(Cavemem(SqliteStore(folder), RecoveryStore(folder))) as cavemem:
            cavemem.forget(cavemem.remember("the last one").id)

        assert not found_in_files(folder, *(word for text in texts for word in text.split()[::3]))
        assert another.run("PRAGMA integrity_check") == [("ok",)]
        assert another.run("SELECT count(*), sum(length(text)) FROM memories") == [
            (50, sum(len(f"stays {number} ") * 20 * number for number in range(50)))
        ]


@pytest.mark.parametrize("reserved", [0, 8])
def test_pages_with_bytes_reserved_for_another_programs_checksums_are_left_alone(tmp_path: Path, reserved: int) -> None:
    path = tmp_path / "some.db"
    with closing(apsw.Connection(str(path))) as creating:
        creating.reserve_bytes(reserve=reserved)
        connection = cast("files.Connection", creating)
        connection.execute("CREATE TABLE t(x); INSERT INTO t VALUES (1)")
    path.write_bytes(path.read_bytes().replace(bytes(100), b"left over" + bytes(91), 1))
    with closing(files.connect(path)) as connection:
        assert connection.execute("SELECT x FROM t").get == 1

    scrub._zero_unused(path)

    assert (b"left over" in path.read_bytes()) == (reserved > 0)
    with closing(files.connect(path)) as connection:
        assert connection.pragma("integrity_check") == "ok"


def test_an_interrupted_forget_is_finished_at_the_next_open(folder: Path) -> None:
    text = TEXTS["several_pages"]
    with closing(SqliteStore(folder)) as store, closing(RecoveryStore(folder)) as recovery:
        cavemem = Cavemem(store, recovery)
        id = cavemem.remember(text).id
        cavemem.recall(text[:200], token_budget=5)
        handle = recovery_handle(text)
        assert recovery.recover(handle) == text.encode()

        def delete_alone(transaction: Transaction) -> None:
            transaction.delete(id)
            transaction.note_erasure(handle)

        store.write(delete_alone)  # and then the process dies

    with closing(Cavemem(SqliteStore(folder), RecoveryStore(folder))) as cavemem:
        cavemem.finish_erasures()

        assert not found_in_files(folder, *text.split())
    with closing(SqliteStore(folder)) as store, closing(RecoveryStore(folder)) as recovery:
        assert recovery.recover(handle) is None
        assert store.pending_erasures() == []


def test_a_forget_that_could_not_finish_is_finished_when_it_is_repeated(
    cavemem: Cavemem, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = TEXTS["several_pages"]
    id = cavemem.remember(text).id
    handle = cavemem.recall(text, token_budget=5).hits[0].recovery_handle
    assert handle is not None
    monkeypatch.setattr(files, "BUSY_MS_MAX", 100)
    with ForeignProgram(folder / "ccr.db") as another:
        another.run("BEGIN IMMEDIATE")
        with pytest.raises(OperationFailedError, match="another program holds the store"):
            cavemem.forget(id)
        another.run("COMMIT")

        assert not cavemem.forget(id).forgotten

    assert not found_in_files(folder, *text.split())
    with pytest.raises(OperationFailedError, match="nothing is kept"):
        cavemem.recover(handle)


def test_notes_that_another_process_has_cleared_need_no_second_scrub(store: SqliteStore, folder: Path) -> None:
    store.write(lambda transaction: transaction.note_erasure("ccr_1"))

    assert scrub.finish(folder / "mem.db", ["ccr_1"], files.busy_deadline())
    store.finish_erasures(["ccr_1"])

    assert store.pending_erasures() == []
