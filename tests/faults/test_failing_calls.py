"""Whichever call of SQLite or of the kernel fails, a store is as before or as asked, says what failed, and goes on.

Every operation runs again and again on a copy of the same store, with its first call failing, then its second, until
there is none left to fail: that one alone, or all from there on.
"""

import errno
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import count, pairwise
from pathlib import Path
from threading import Event

import apsw
import pytest

from cavemem_mcp import CaveError, Cavemem, OperationFailedError, StoreError, open_memory
from cavemem_mcp.model import SCORE_THRESHOLD, memory_id, recovery_handle
from cavemem_mcp.store import files
from cavemem_mcp.store.sqlite import SqliteStore
from tests import bm25_oracle
from tests.faults import invariants
from tests.faults.faulty import ALL, READS, WRITES, Fault, Heap, Seam, Statements, Syncs, SystemCalls, heap_needed

FACTS = [f"berth {number} of the quay belongs to ship number{number}" for number in range(6)]
VERSIONS = ["the pilot is Ada", "the pilot is Bert", "the pilot is Cora"]
LOG = "".join(f"2024-05-01T10:00:{second:02} INFO crane heartbeat ok sequence={second}\n" for second in range(60))
SECRET = LOG.replace("crane", "zanzibar")
CALLERS = 4

KERNEL_FAULTS = [
    Fault(name="EIO", calls=ALL - {"fcntl"}, code=errno.EIO),
    Fault(name="EIO of a lock", calls=frozenset({"fcntl"}), code=errno.EIO, may_last=False),
    Fault(name="ENOSPC", calls=WRITES | {"ftruncate"}, code=errno.ENOSPC),
    Fault(name="ENOMEM", calls=frozenset({"open", "mmap"}), code=errno.ENOMEM),
    Fault(name="EMFILE", calls=frozenset({"open", "openDirectory"}), code=errno.EMFILE),
    Fault(name="a lock held elsewhere", calls=frozenset({"fcntl"}), code=errno.EAGAIN, may_last=False),
    Fault(name="a page read as zeros", calls=READS, code=0),
]
STATEMENT_FAULTS = [
    Fault(name=name, code=getattr(apsw, f"SQLITE_{name}"))
    for name in ("IOERR_READ", "FULL", "BUSY", "CORRUPT", "NOMEM", "INTERRUPT", "CANTOPEN", "PROTOCOL")
]
SYNC_FAULTS = [
    Fault(name=name, code=getattr(apsw, f"SQLITE_{name}")) for name in ("IOERR_FSYNC", "FULL", "IOERR_NOMEM")
]
SEAMS: dict[str, tuple[Callable[[], Seam], list[Fault]]] = {
    "kernel": (SystemCalls, KERNEL_FAULTS),
    "statements": (Statements, STATEMENT_FAULTS),
    "syncs": (Syncs, SYNC_FAULTS),
}


@dataclass(frozen=True)
class Operation:
    """What is done to a copy of a store while calls fail; opening it belongs to that, or has happened before."""

    act: Callable[[Cavemem], object]
    store: str = "filled"
    opens: bool = False


class SomeFailed(Exception):
    """Some callers of a shared commit failed, one with `error`; the ids are what the others were told is stored."""

    def __init__(self, error: CaveError, ids: set[str]) -> None:
        super().__init__(error.message)
        self.error = error
        self.ids = ids


def commit_for_several(memory: Cavemem) -> None:
    """Let callers wait until one commit answers them all; each gets what became of its own write."""
    store = memory.store
    assert isinstance(store, SqliteStore)
    with ThreadPoolExecutor(CALLERS) as threads:
        with store._writing:
            answers = [threads.submit(memory.remember, f"berth of caller {caller}") for caller in range(CALLERS)]
            while len(store._commits._waiting) < CALLERS and not any(answer.done() for answer in answers):
                Event().wait(0.0005)
        errors = [error for answer in answers if (error := answer.exception()) is not None]
    for error in errors:
        assert isinstance(error, CaveError), error
        raise SomeFailed(error, {answer.result().id for answer in answers if answer.exception() is None}) from error


def recall_and_recover(memory: Cavemem) -> None:
    """Recall what is shortened; whatever handle comes back leads to the original."""
    for hit in memory.recall("crane heartbeat", token_budget=None).hits:
        if hit.recovery_handle is not None:
            assert memory_id(memory.recover(hit.recovery_handle).text) == hit.id


OPERATIONS = {
    "remember": Operation(lambda memory: memory.remember("a new lighthouse stands at the quay")),
    "remember a long text": Operation(lambda memory: memory.remember("lighthouse and quay " * 1500)),
    "supersede": Operation(lambda memory: memory.supersede(memory_id(VERSIONS[2]), "the pilot is Dora")),
    "history": Operation(lambda memory: memory.history(memory_id(VERSIONS[0]))),
    "forget a version": Operation(lambda memory: memory.forget(memory_id(VERSIONS[1]))),
    "forget an original": Operation(lambda memory: memory.forget(memory_id(SECRET))),
    "recall": Operation(lambda memory: memory.recall("berth quay number3")),
    "recall and keep": Operation(recall_and_recover),
    "recall and keep the first original": Operation(recall_and_recover, store="without originals"),
    "recover": Operation(lambda memory: memory.recover(recovery_handle(SECRET))),
    "open": Operation(lambda memory: memory, opens=True),
    "open what was being forgotten": Operation(lambda memory: memory, store="forgetting", opens=True),
    "open a new store": Operation(lambda memory: memory, store="absent", opens=True),
    "migrate": Operation(lambda memory: memory, store="legacy", opens=True),
    "catch up": Operation(lambda memory: memory.catch_up(), store="with foreign rows"),
    "commit for several": Operation(commit_for_several),
    "close": Operation(lambda memory: memory.close()),
}


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where a store of every kind lies."""
    base = tmp_path_factory.mktemp("templates")
    with closing(open_memory(base / "without originals")) as memory:
        for text in (*FACTS, VERSIONS[0], LOG, SECRET):
            memory.remember(text)
        for old, new in pairwise(VERSIONS):
            memory.supersede(memory_id(old), new)
    shutil.copytree(base / "without originals", base / "filled")
    with closing(open_memory(base / "filled")) as memory:
        assert memory.recall("zanzibar heartbeat", limit=1).hits[0].recovery_handle == recovery_handle(SECRET)
    make_forgetting(shutil.copytree(base / "filled", base / "forgetting"))
    make_foreign_rows(shutil.copytree(base / "filled", base / "with foreign rows"))
    make_legacy(base / "legacy")
    return base


def make_forgetting(folder: Path) -> None:
    """Leave a store as a crash leaves it between deleting a memory and its original."""
    with closing(SqliteStore(folder)) as store:
        store.write(lambda transaction: transaction.delete(memory_id(SECRET)))
        store.write(lambda transaction: transaction.note_erasure(recovery_handle(SECRET)))


def make_foreign_rows(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "mem.db")) as connection, connection:
        for number in range(5):
            text = f"foreign berth {number} of the quay"
            connection.execute(
                "INSERT INTO memories(id, text, created_at, valid_from) VALUES (?, ?, 't', 't')",
                (memory_id(text), text),
            )
        connection.execute("UPDATE memories SET text = text || ' now' WHERE id = ?", (memory_id(FACTS[0]),))


def make_legacy(folder: Path) -> None:
    """Make a store of the oldest layout, as the Go program left it."""
    folder.mkdir()
    with closing(sqlite3.connect(folder / "mem.db")) as connection, connection:
        connection.execute("CREATE TABLE memories (id TEXT PRIMARY KEY, text TEXT NOT NULL, created_at TEXT NOT NULL)")
        connection.executemany("INSERT INTO memories VALUES (?, ?, 't')", [(memory_id(text), text) for text in FACTS])


def state(folder: Path) -> list[dict[str, object]]:
    """Return the memories without the time at which they were written."""
    return [
        {
            name: value is not None if name in ("created_at", "valid_from", "valid_until") else value
            for name, value in row
        }
        for row in invariants.memories(folder)
    ]


def succeed(operation: Operation, folder: Path) -> None:
    with closing(open_memory(folder)) as memory:
        operation.act(memory)


class Trials:
    """One operation, on a new copy of its store each time."""

    def __init__(self, operation: Operation, templates: Path, scratch: Path) -> None:
        self._operation = operation
        self._template = templates / operation.store
        self._scratch = scratch
        folder = self._copy()
        self._before = state(folder)
        succeed(operation, folder)
        self._after = state(folder)
        self._number = 0

    def _copy(self) -> Path:
        folder = self._scratch / "store"
        shutil.rmtree(folder, ignore_errors=True)
        if self._template.exists():
            shutil.copytree(self._template, folder)
        return folder

    def heap_needed(self) -> int:
        """Return how many KiB SQLite takes for the operation."""
        folder = self._copy()
        if self._operation.opens:
            return heap_needed(lambda: open_memory(folder).close())
        with closing(open_memory(folder)) as memory:
            return heap_needed(lambda: self._operation.act(memory))

    def run(self, make_seam: Callable[[], Seam], fault: Fault, at: int) -> bool:
        """Let one call fail; check what is there, do it again, and check again. False when there was no such call."""
        folder = self._copy()
        memory: Cavemem | None = None
        error: CaveError | SomeFailed | None = None
        with make_seam() as seam:
            if not self._operation.opens:
                memory = open_memory(folder)
            with pytest.MonkeyPatch.context() as patch:
                if fault.lasts:  # nobody will let go of a lock
                    patch.setattr(files, "BUSY_MS_MAX", 30)
                seam.arm(fault, at)
                try:
                    memory = memory or open_memory(folder)
                    self._operation.act(memory)
                except (CaveError, SomeFailed) as raised:
                    error = raised
                finally:
                    has_failed = seam.disarm()
            found = state(folder)
            if error is None:
                assert found == self._after, "what was acknowledged is there"
            else:
                self._check_whole(found, error)
                check_error(error.error if isinstance(error, SomeFailed) else error, folder)
            if found:
                invariants.check(folder)
            self._go_on(folder, memory, is_done=found == self._after)
        return has_failed

    def _check_whole(self, found: list[dict[str, object]], error: CaveError | SomeFailed) -> None:
        if isinstance(error, SomeFailed):
            assert error.ids <= {row["id"] for row in found}, "what was acknowledged is there"
            assert all(row in found for row in self._before)
            assert all(row in self._after for row in found)
        else:
            assert found in (self._before, self._after), "all or nothing"

    def _go_on(self, folder: Path, memory: Cavemem | None, *, is_done: bool) -> None:
        """Check that the same process can do what failed, and everything else, now that nothing fails any more."""
        if memory is None or self._operation is OPERATIONS["close"]:
            memory = open_memory(folder)
        with closing(memory):
            with suppress(OperationFailedError) if is_done else nullcontext():  # what is done may not be done again
                self._operation.act(memory)
            if self._operation is OPERATIONS["close"]:
                memory = open_memory(folder)
            found = state(folder)
            assert found == self._after
            check_recall(memory, found)
            memory.remember("the last word")
            memory.close()
        invariants.check(folder)
        if SECRET not in {row["text"] for row in found} and self._operation.store not in ("legacy", "absent"):
            assert not any(b"zanzibar" in path.read_bytes() for path in folder.iterdir()), "forgotten, and erased"


def check_error(error: CaveError, folder: Path) -> None:
    """Check that a failure is ours, names the file, says what to do, and quotes no memory."""
    assert isinstance(error, OperationFailedError | StoreError), error
    assert str(folder) in error.message
    assert any(advice in error.message for advice in files.ADVICE.values()), error.message
    assert "quay" not in error.message.replace(str(folder), "")
    assert "SQLError" not in error.message, "another failure hides the first"


def check_recall(memory: Cavemem, rows: list[dict[str, object]]) -> None:
    current = {str(row["id"]): str(row["text"]) for row in rows if not row.get("valid_until")}
    expected = bm25_oracle.rank(current, "quay berth zanzibar", limit=20, threshold=SCORE_THRESHOLD)
    found = memory.recall("quay berth zanzibar", limit=20, token_budget=None)
    assert [(hit.id, hit.score) for hit in found.hits] == [(best.id, best.score) for best in expected.best]


def faults_of(faults: list[Fault], rng: random.Random, *, is_long: bool) -> Iterator[Fault]:
    """Yield each fault: once and lasting in the long form, one of these in the short one."""
    for fault in faults:
        lasting = [replace(fault, lasts=True)] if fault.may_last else []
        yield from [fault, *lasting] if is_long else [rng.choice([fault, *lasting])]


@pytest.fixture
def trials(request: pytest.FixtureRequest, templates: Path, tmp_path: Path) -> Trials:
    return Trials(OPERATIONS[request.param], templates, tmp_path)


@pytest.mark.parametrize("trials", OPERATIONS, indirect=True)
@pytest.mark.parametrize("seam", SEAMS)
def test_whichever_call_fails_nothing_is_half_done(
    seam: str, trials: Trials, sized: Callable[[int, int], int], rng: random.Random, figures: Counter[str]
) -> None:
    make_seam, faults = SEAMS[seam]
    steps_max = sized(19, 1)
    for fault in faults_of(faults, rng, is_long=steps_max == 1):
        at = rng.randint(1, steps_max // 2 + 1)
        while trials.run(make_seam, fault, at):
            print(f"survived call {at}: {fault}")
            figures["faults injected"] += 1
            at += rng.randint(1, steps_max)


@pytest.mark.parametrize("trials", OPERATIONS, indirect=True)
def test_wherever_memory_runs_out_nothing_is_half_done(
    trials: Trials, sized: Callable[[int, int], int], rng: random.Random, figures: Counter[str]
) -> None:
    needed = trials.heap_needed()
    every = range(needed)
    for at in rng.sample(every, min(sized(8, needed), needed)):
        trials.run(Heap, Fault(name="NOMEM", code=apsw.SQLITE_NOMEM), at)
        print(f"survived without memory after {at} of {needed} KiB")
        figures["faults injected"] += 1


def make_long_log(folder: Path, in_use: Path) -> None:
    """Leave a store whose log the next large commit moves into the database; small pages make that few bytes."""
    in_use.mkdir()
    with closing(sqlite3.connect(in_use / "mem.db")) as connection:
        connection.execute("PRAGMA page_size = 512")
        connection.execute("CREATE TABLE memories (id TEXT PRIMARY KEY, text TEXT NOT NULL, created_at TEXT NOT NULL)")
    log = in_use / "mem.db-wal"
    with closing(open_memory(in_use)) as memory:
        for number in count():
            memory.remember(f"berth {number} of the quay " * 200)
            if log.stat().st_size > 7900 * (512 + 24):
                break
        shutil.copytree(in_use, folder, ignore=shutil.ignore_patterns("*-shm"))


def test_a_commit_stands_whichever_call_fails_when_the_log_is_moved_into_the_database(
    tmp_path: Path, sized: Callable[[int, int], int], rng: random.Random, figures: Counter[str]
) -> None:
    make_long_log(tmp_path / "long log", tmp_path / "in use")
    operation = Operation(lambda memory: memory.remember("lighthouse and quay " * 5000), store="long log")
    trials = Trials(operation, tmp_path, tmp_path)
    calls_apart = sized(2500, 30)  # there are thousands, of few kinds
    for fault in faults_of(KERNEL_FAULTS[:3], rng, is_long=sized(0, 1) == 1):
        at = rng.randint(1, calls_apart)
        while trials.run(SystemCalls, fault, at):
            print(f"survived call {at}: {fault}")
            figures["faults injected"] += 1
            at += rng.randint(1, calls_apart)
