"""What the service relies on: transactions that happen whole or not at all, snapshots of one moment, safe closing."""

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cavemem_mcp.errors import StoreError
from cavemem_mcp.model import Memory, memory_id
from cavemem_mcp.store import Store, Transaction, files, open_store
from cavemem_mcp.store.sqlite import READERS_IDLE_MAX, SqliteStore
from tests.store.foreign import ForeignProgram

_: type[Store] = SqliteStore

NASTY_TEXTS = [
    "\0",
    "a\0b",
    "\ufeff",
    "\u2028",
    "'\"; DROP TABLE memories --",
    "e\u0301\u0301",
    "\U0010ffff",
    "x" * 262_144,
]


def memory(text: str, **others: Any) -> Memory:
    return Memory(id=memory_id(text), text=text, created_at="t0", valid_from="t0", **others)


def remember(store: Store, *texts: str) -> None:
    def work(transaction: Transaction) -> None:
        for text in texts:
            transaction.insert(memory(text))

    store.write(work)


def stored(store: Store, id: str) -> Memory | None:
    with store.read() as snapshot:
        return snapshot.memory(id)


def test_a_folder_opens_as_a_store(folder: Path) -> None:
    with closing(open_store(folder)) as store:
        remember(store, "ant")

    with closing(open_store(folder)) as store:
        assert stored(store, memory_id("ant")) == memory("ant")


@pytest.mark.parametrize("text", NASTY_TEXTS, ids=range(len(NASTY_TEXTS)))
def test_a_text_comes_back_exactly(store: SqliteStore, text: str) -> None:
    remember(store, text)

    assert stored(store, memory_id(text)) == memory(text)


def test_every_field_comes_back(store: SqliteStore) -> None:
    full = memory("ant", valid_until="t2", supersedes="mem_1", superseded_by="mem_2")

    store.write(lambda transaction: transaction.insert(full))

    assert stored(store, full.id) == full
    assert stored(store, "mem_unknown") is None


def test_a_transaction_sees_its_own_changes_and_returns_what_the_work_returns(store: SqliteStore) -> None:
    def work(transaction: Transaction) -> tuple[Memory | None, Memory | None]:
        transaction.insert(memory("ant"))
        inserted = transaction.memory(memory_id("ant"))
        transaction.delete(memory_id("ant"))
        return inserted, transaction.memory(memory_id("ant"))

    assert store.write(work) == (memory("ant"), None)


def test_work_that_raises_changes_nothing(store: SqliteStore) -> None:
    remember(store, "ant")

    def work(transaction: Transaction) -> None:
        transaction.delete(memory_id("ant"))
        transaction.insert(memory("bee"))
        transaction.note_erasure("ccr_1")
        raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        store.write(work)

    assert stored(store, memory_id("ant")) == memory("ant")
    assert stored(store, memory_id("bee")) is None
    assert store.pending_erasures() == []


def test_an_expired_memory_stays_and_is_linked(store: SqliteStore) -> None:
    remember(store, "ant")

    store.write(lambda transaction: transaction.expire(memory_id("ant"), valid_until="t1", superseded_by="mem_2"))
    store.write(lambda transaction: transaction.relink(memory_id("ant"), supersedes="mem_0", superseded_by=None))

    assert stored(store, memory_id("ant")) == memory("ant", valid_until="t1", supersedes="mem_0")


CHANGES: dict[str, Callable[[Transaction], None]] = {
    "insert": lambda transaction: transaction.insert(memory("bee")),
    "expire": lambda transaction: transaction.expire(memory_id("ant"), valid_until="t1", superseded_by="mem_2"),
    "relink": lambda transaction: transaction.relink(memory_id("ant"), supersedes="mem_0", superseded_by=None),
    "delete": lambda transaction: transaction.delete(memory_id("ant")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_that_another_programs_trigger_swallows_is_an_error(
    store: SqliteStore, folder: Path, change: Callable[[Transaction], None]
) -> None:
    remember(store, "ant")
    with ForeignProgram(folder / "mem.db") as another:
        for event in ("INSERT", "UPDATE", "DELETE"):
            another.run(f"CREATE TRIGGER keep_{event} BEFORE {event} ON memories BEGIN SELECT RAISE(IGNORE); END")

    with pytest.raises(StoreError, match=r"mem\.db: 0 memories changed instead of one; .* restore a backup"):
        store.write(change)

    assert stored(store, memory_id("ant")) == memory("ant")
    assert stored(store, memory_id("bee")) is None


def test_noted_erasures_stay_until_they_are_finished(folder: Path) -> None:
    with closing(SqliteStore(folder)) as store:
        for handle in ("ccr_1", "ccr_2", "ccr_1"):
            store.write(lambda transaction, handle=handle: transaction.note_erasure(handle))

    with closing(SqliteStore(folder)) as store:
        assert store.pending_erasures() == ["ccr_1", "ccr_2"]
        store.finish_erasures(["ccr_1"], waits=True)
        assert store.pending_erasures() == ["ccr_2"]


def test_nested_and_many_readers_do_not_wait_for_each_other(store: SqliteStore) -> None:
    remember(store, "ant")
    snapshots = [store.read() for _ in range(READERS_IDLE_MAX + 3)]

    opened = [snapshot.__enter__() for snapshot in snapshots]

    assert all(snapshot.memory(memory_id("ant")) for snapshot in opened)
    for snapshot in snapshots:
        snapshot.__exit__(None, None, None)
    assert len(store._readers) == READERS_IDLE_MAX


def test_a_reader_cannot_write(store: SqliteStore) -> None:
    with pytest.raises(StoreError, match="cannot be written"), store.read() as snapshot:
        snapshot._connection.execute("DELETE FROM memories")


def test_a_closed_store_says_so_and_closes_again(folder: Path) -> None:
    store = SqliteStore(folder)
    store.close()
    store.close()

    calls: list[Callable[[], object]] = [
        lambda: stored(store, "mem_1"),
        lambda: remember(store, "ant"),
        store.pending_erasures,
        lambda: store.finish_erasures(["ccr_1"], waits=True),
    ]
    for call in calls:
        with pytest.raises(StoreError, match="was closed; open the store again"):
            call()


def test_closing_waits_for_the_calls_in_progress(folder: Path) -> None:
    store = SqliteStore(folder)
    is_writing, may_end = threading.Event(), threading.Event()

    def work(transaction: Transaction) -> None:
        transaction.insert(memory("ant"))
        is_writing.set()
        may_end.wait()

    writer = threading.Thread(target=store.write, args=(work,))
    closer = threading.Thread(target=store.close)
    writer.start()
    is_writing.wait()
    closer.start()
    while not store._calls._have_ended:
        closer.join(0.01)
    assert closer.is_alive()
    may_end.set()
    writer.join()
    closer.join()

    with closing(SqliteStore(folder)) as store:
        assert stored(store, memory_id("ant")) is not None


def test_a_write_waits_while_another_thread_writes(store: SqliteStore) -> None:
    is_writing, may_end = threading.Event(), threading.Event()

    def slow(transaction: Transaction) -> None:
        transaction.insert(memory("ant"))
        is_writing.set()
        may_end.wait()

    threads = [
        threading.Thread(target=store.write, args=(slow,)),
        threading.Thread(target=remember, args=(store, "bee")),
    ]
    threads[0].start()
    is_writing.wait()
    threads[1].start()
    assert stored(store, memory_id("ant")) is None, "reads do not wait, and see what is committed"
    may_end.set()
    for thread in threads:
        thread.join()

    assert stored(store, memory_id("ant")) is not None
    assert stored(store, memory_id("bee")) is not None


def test_a_write_gives_up_when_other_threads_use_its_budget(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BUSY_MS_MAX", 50)

    with store._writing, pytest.raises(StoreError, match="another program holds the store"):
        remember(store, "ant")
