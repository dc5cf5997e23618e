"""Callers that wait at the same time share a commit, and nothing else."""

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import cast

import apsw
import pytest

from cavemem_mcp.errors import StoreError
from cavemem_mcp.model import Memory, memory_id, timestamp
from cavemem_mcp.store import Transaction, files
from cavemem_mcp.store.sqlite import SqliteStore
from tests.store.connections import writer_of


class Refused(Exception):
    """Raised by work of these tests."""


def insertion(text: str, *, refused: bool = False) -> Callable[[Transaction], str]:
    memory = Memory(id=memory_id(text), text=text, created_at=timestamp(0), valid_from=timestamp(0))

    def work(transaction: Transaction) -> str:
        transaction.insert(memory)
        if refused:
            raise Refused(text)
        return memory.id

    return work


def write_together(store: SqliteStore, works: list[Callable[[Transaction], str]]) -> list[Future[str]]:
    """Run works from as many threads, all of which wait while this thread holds the writing connection."""
    with ThreadPoolExecutor(len(works)) as threads:
        with store._writing:
            written = [threads.submit(store.write, work) for work in works]
            while len(store._commits._waiting) < len(works):
                threading.Event().wait(0.001)
        return written


def connection_of(store: SqliteStore) -> apsw.Connection:
    return cast("apsw.Connection", writer_of(store))


def stored(store: SqliteStore, texts: list[str]) -> list[bool]:
    with store.read() as snapshot:
        return [snapshot.memory(memory_id(text)) is not None for text in texts]


TEXTS = [f"harbour {number}" for number in range(8)]


def test_callers_that_wait_together_share_one_commit(store: SqliteStore) -> None:
    commits: list[int] = []
    connection_of(store).set_commit_hook(lambda: commits.append(1) is not None)
    written = write_together(store, [insertion(text) for text in TEXTS])
    assert [future.result() for future in written] == [memory_id(text) for text in TEXTS]
    assert len(commits) == 1
    assert all(stored(store, TEXTS))
    with store.read() as snapshot:
        assert snapshot.document_frequencies(["harbour"]) == {"harbour": 8}


def test_a_caller_goes_on_when_it_is_answered_whoever_commits_next(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BUSY_MS_MAX", 60_000)  # nobody gives up meanwhile
    with ThreadPoolExecutor(2) as threads:
        with store._writing:
            leading, led = (threads.submit(store.write, insertion(text)) for text in TEXTS[:2])
            while len(store._commits._waiting) < 2:
                threading.Event().wait(0.001)
            store._commits.commit(store._lent_writer, files.busy_deadline())
            done, _ = wait([leading, led], timeout=10, return_when=FIRST_COMPLETED)  # the other one leads
            assert len(done) == 1
        assert {leading.result(), led.result()} == {memory_id(text) for text in TEXTS[:2]}


def test_work_that_raises_undoes_itself_alone_and_raises_in_its_own_caller(store: SqliteStore) -> None:
    written = write_together(store, [insertion(text, refused=text == TEXTS[3]) for text in TEXTS])
    assert [isinstance(future.exception(), Refused) for future in written] == [text == TEXTS[3] for text in TEXTS]
    assert stored(store, TEXTS) == [text != TEXTS[3] for text in TEXTS]
    with store.read() as snapshot:
        assert snapshot.document_frequencies(["harbour", "3"]) == {"harbour": 7}


def test_a_shared_commit_that_fails_is_repeated_for_each_caller_alone(store: SqliteStore) -> None:
    commits: list[int] = []

    def refuse_the_first() -> bool:
        commits.append(1)
        return len(commits) in (1, 4)

    connection_of(store).set_commit_hook(refuse_the_first)
    written = write_together(store, [insertion(text) for text in TEXTS])
    assert len(commits) == 1 + len(TEXTS)
    failed = [future.exception() is not None for future in written]
    assert failed.count(True) == 1
    assert stored(store, TEXTS) == [not has_failed for has_failed in failed]


def test_a_caller_that_gave_up_waiting_has_changed_nothing(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BUSY_MS_MAX", 20)
    with store._writing, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(store.write, insertion(TEXTS[0]))
        assert isinstance(waiting.exception(timeout=10), StoreError)
    store.write(insertion(TEXTS[1]))
    assert stored(store, TEXTS[:2]) == [False, True]


def test_a_caller_whose_work_was_one_too_many_for_a_transaction_commits_in_the_next(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cavemem_mcp.store.commits.GROUP_MAX", 2)
    monkeypatch.setattr(files, "BUSY_MS_MAX", 20)  # the first of these callers never leads
    earlier = [store._commits.add(insertion(text)) for text in TEXTS[:4]]  # of callers that never go on
    writing = threading.Thread(target=store.write, args=[insertion(TEXTS[4])], daemon=True)
    writing.start()
    writing.join(10)
    assert not writing.is_alive()
    assert [request.result() for request in earlier] == [memory_id(text) for text in TEXTS[:4]]
    assert all(stored(store, TEXTS[:5]))


def test_an_interrupted_commit_acknowledges_nothing_and_interrupts_its_own_thread_alone(store: SqliteStore) -> None:
    connection_of(store).set_commit_hook(lambda: True)  # the shared commit fails, so that each caller's work runs again
    interrupted: list[str] = []

    def interrupting(work: Callable[[Transaction], str]) -> Callable[[Transaction], str]:
        def run(transaction: Transaction) -> str:
            id = work(transaction)
            interrupted.append(id)
            if len(interrupted) == len(TEXTS) + 1:
                raise KeyboardInterrupt
            return id

        return run

    written = write_together(store, [interrupting(insertion(text)) for text in TEXTS])
    kinds = [type(future.exception()) for future in written]
    assert kinds.count(KeyboardInterrupt) == 1
    assert kinds.count(StoreError) == len(TEXTS) - 1
    connection_of(store).set_commit_hook(None)
    assert not any(stored(store, TEXTS))
    store.write(insertion(TEXTS[0]))
    assert stored(store, TEXTS[:1]) == [True]
