"""Forgetting is real: no byte of a forgotten text stays in any file of the folder, nor a word that only it had."""

import random
import re
import string
import struct
import threading
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import cast

import apsw
import pytest

from cavemem_mcp import upkeep
from cavemem_mcp.errors import OperationFailedError
from cavemem_mcp.model import MEMORY_BYTES_MAX, recovery_handle
from cavemem_mcp.recovery import RecoveryStore
from cavemem_mcp.service import Cavemem
from cavemem_mcp.store import Transaction, files, scrub
from cavemem_mcp.store.sqlite import SqliteStore
from tests.server.processes import poll
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


def found_in_files(folder: Path, *texts: str | bytes) -> set[str | bytes]:
    contents = [path.read_bytes() for path in folder.iterdir()]
    wanted = {text[:40]: text if isinstance(text, bytes) else text.encode() for text in texts}
    return {name for name, data in wanted.items() if any(data in content for content in contents)}


def frame_of(folder: Path, text: str) -> bytes:
    """Return some bytes of how an original is kept."""
    with ForeignProgram(folder / "ccr.db") as another:
        ((stored,),) = another.run("SELECT original FROM originals WHERE handle = ?", recovery_handle(text))
    return stored[20:60]


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


def begin_to_read(reader: ForeignProgram) -> None:
    reader.run("BEGIN")
    reader.run("SELECT count(*) FROM sqlite_schema")


def wait_until_no_file_has(folder: Path, *texts: str | bytes) -> None:
    poll(lambda: not found_in_files(folder, *texts))


def test_other_threads_write_while_a_forget_waits_for_a_long_reader(cavemem: Cavemem, folder: Path) -> None:
    id = cavemem.remember(TEXTS["short"]).id
    with ForeignProgram(folder / "mem.db") as reader, ThreadPoolExecutor(1) as threads:
        begin_to_read(reader)
        forgetting = threads.submit(cavemem.forget, id)
        while not cavemem.store.pending_erasures():
            assert not forgetting.done()

        written = [cavemem.remember(f"written meanwhile {number}").id for number in range(20)]

        assert not forgetting.done()
        assert all(len(cavemem.history(id).history) == 1 for id in written)
        reader.run("COMMIT")
        assert forgetting.result().forgotten
    assert not found_in_files(folder, *TEXTS["short"].split())


@pytest.mark.parametrize("file", ["mem.db", "ccr.db"])
def test_what_a_long_reader_kept_is_scrubbed_after_it_without_another_call(
    cavemem: Cavemem, folder: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.setattr(files, "BUSY_MS_MAX", 50)
    text = TEXTS["several_pages"]
    id = cavemem.remember(text).id
    assert cavemem.recall(text, token_budget=5).hits[0].recovery_handle
    frame = frame_of(folder, text)
    with ForeignProgram(folder / file) as reader:
        begin_to_read(reader)
        assert cavemem.forget(id).forgotten
        assert found_in_files(folder, *text.split()) == (set(text.split()) if file == "mem.db" else set())
        reader.run("COMMIT")

        wait_until_no_file_has(folder, *text.split())
        wait_until_no_file_has(folder, frame)
        poll(lambda: not cavemem.store.pending_erasures())


def test_what_a_long_reader_kept_is_scrubbed_when_the_memory_closes(
    cavemem: Cavemem, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BUSY_MS_MAX", 50)
    monkeypatch.setattr(upkeep, "PAUSE_SECONDS_MIN", 1000)
    id = cavemem.remember(TEXTS["short"]).id
    with ForeignProgram(folder / "mem.db") as reader:
        begin_to_read(reader)
        assert cavemem.forget(id).forgotten
        reader.run("COMMIT")

        cavemem.close()

        assert not found_in_files(folder, *TEXTS["short"].split())


def leave_to_erase(folder: Path, id: str, text: str) -> None:
    """Delete a memory as a process does that ends before it has erased anything."""

    def delete_alone(transaction: Transaction) -> None:
        transaction.delete(id)
        transaction.note_erasure(recovery_handle(text))

    with closing(SqliteStore(folder)) as dying:
        dying.write(delete_alone)


def test_what_a_process_left_to_erase_is_scrubbed_by_another_that_writes(cavemem: Cavemem, folder: Path) -> None:
    text = TEXTS["several_pages"]
    leave_to_erase(folder, cavemem.remember(text).id, text)

    cavemem.remember("something else")

    wait_until_no_file_has(folder, *text.split())


def test_closing_waits_for_no_program_that_keeps_it_from_scrubbing(
    cavemem: Cavemem, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "PAUSE_SECONDS_MIN", 1000)
    leave_to_erase(folder, cavemem.remember(TEXTS["short"]).id, TEXTS["short"])
    cavemem.remember("something else")
    monkeypatch.setattr(files, "BUSY_MS_MAX", 600_000)
    with ThreadPoolExecutor(1) as threads, ForeignProgram(folder / "mem.db") as writer:
        writer.run("BEGIN IMMEDIATE")

        threads.submit(cavemem.close).result(timeout=20)

    with closing(SqliteStore(folder)) as store:
        assert store.pending_erasures() == [recovery_handle(TEXTS["short"])]


def test_closing_ends_the_wait_of_a_forget(cavemem: Cavemem, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BUSY_MS_MAX", 600_000)
    id = cavemem.remember(TEXTS["short"]).id
    with ForeignProgram(folder / "mem.db") as reader, ThreadPoolExecutor(1) as threads:
        begin_to_read(reader)
        forgetting = threads.submit(cavemem.forget, id)
        while not cavemem.store.pending_erasures():
            assert not forgetting.done()

        cavemem.close()

        assert forgetting.result(timeout=20).forgotten
    with closing(SqliteStore(folder)) as store:
        assert store.pending_erasures() == [recovery_handle(TEXTS["short"])]


def test_what_another_program_deletes_leaves_no_original(cavemem: Cavemem, folder: Path) -> None:
    texts = [TEXTS["several_pages"], " ".join(words(700, seed=9))]
    ids = [cavemem.remember(text).id for text in texts]
    handles = [cavemem.recall(text, token_budget=5).hits[0].recovery_handle or "" for text in texts]
    frame = frame_of(folder, texts[0])
    with ForeignProgram(folder / "mem.db") as another:
        another.run("DELETE FROM memories WHERE id = ?", ids[0])

    with pytest.raises(OperationFailedError, match="nothing is kept"):
        cavemem.recover(handles[0])
    assert cavemem.recover(handles[1]).text == texts[1]
    assert found_in_files(folder, frame)

    cavemem.remember("something else")

    wait_until_no_file_has(folder, *texts[0].split())
    wait_until_no_file_has(folder, frame)
    poll(lambda: not cavemem.store.pending_erasures())
    assert cavemem.recover(handles[1]).text == texts[1]


def test_an_original_whose_memory_another_program_changed_still_recovers(cavemem: Cavemem, folder: Path) -> None:
    text = TEXTS["several_pages"]
    id = cavemem.remember(text).id
    handle = cavemem.recall(text, token_budget=5).hits[0].recovery_handle
    assert handle is not None
    with ForeignProgram(folder / "mem.db") as another:
        another.run("UPDATE memories SET text = 'changed' WHERE id = ?", id)

    cavemem.remember("something else")

    assert cavemem.recover(handle).text == text


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


@pytest.mark.parametrize("page_size", [1024, 4096])
def test_what_other_programs_left_behind_the_end_of_a_long_text_is_scrubbed_too(folder: Path, page_size: int) -> None:
    gone, kept = " ".join(words(2000, seed=1)), "stays " * 2 * page_size
    folder.mkdir(parents=True)
    with ForeignProgram(folder / "mem.db") as another:
        another.run(f"PRAGMA page_size = {page_size}")
        another.run("PRAGMA user_version = 0")  # writes the file
        SqliteStore(folder).close()
        another.run("PRAGMA secure_delete = OFF")
        insert = "INSERT INTO memories(id, text, created_at, valid_from) VALUES (?, ?, '', '')"
        another.run(insert, "goes", gone)
        another.run("DELETE FROM memories")
        for number in range(20):  # they take the free pages, and fill all but their last ones
            another.run(insert, f"stays {number}", kept[: (number + 1) * page_size // 3])
        assert another.run("PRAGMA freelist_count") == [(0,)]
        another.run("PRAGMA wal_checkpoint(TRUNCATE)")
        assert found_in_files(folder, *gone.split())

        with closing(Cavemem(SqliteStore(folder), RecoveryStore(folder))) as cavemem:
            cavemem.forget(cavemem.remember("the last one").id)

        assert not found_in_files(folder, *gone.split())
        assert another.run("PRAGMA integrity_check") == [("ok",)]
        assert another.run("SELECT text FROM memories ORDER BY length(text)") == [
            (kept[: (number + 1) * page_size // 3],) for number in range(20)
        ]


@pytest.mark.parametrize(
    "damage", [{4: 0, 0: 0xFFFFFFF0}, {4: 0, 0: 1}, {4: 0xFFFF}, {8: 0xFFFFFFF0}, {8: 0}], ids=repr
)
def test_a_damaged_list_of_free_pages_is_told_and_nothing_is_written(
    cavemem: Cavemem, folder: Path, damage: dict[int, int]
) -> None:
    for number in range(20):
        cavemem.forget(cavemem.remember(" ".join(words(800, seed=number))).id)
    path = folder / "mem.db"
    with closing(files.connect(path)) as connection:
        assert files.truncate_log(connection, files.busy_deadline())
    content = bytearray(path.read_bytes())
    trunk = struct.unpack_from(">I", content, 32)[0]
    for at, value in damage.items():
        struct.pack_into(">I", content, (trunk - 1) * 4096 + at, value)
    with path.open("r+b") as file:
        file.write(content)

    with closing(files.connect(path)) as connection, pytest.raises(apsw.CorruptError, match="free pages"):
        scrub._zero_unused(path, connection)

    assert path.read_bytes() == content


def test_a_file_of_so_many_pages_that_they_look_alike_is_left_alone() -> None:
    header = bytes(16) + b"\x02\x00" + bytes(82)
    sizes = [512 * (2**25 - 1), 512 * 2**25]
    assert [scrub._Layout(header, size).is_ours_to_change for size in sizes] == [True, False]


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

    with closing(files.connect(path)) as connection:
        scrub._zero_unused(path, connection)

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

    assert scrub.finish(
        folder / "mem.db",
        ["ccr_1"],
        deadline=files.busy_deadline(),
        writing=threading.Lock(),
        stopped=threading.Event(),
    )
    store.finish_erasures(["ccr_1"], waits=True)

    assert store.pending_erasures() == []
