"""The store's seam: what every backend must do, in terms of the model alone, and the way to open one.

Facts live below this seam, judgement (what an operation means, ranking, packing) above it, so that every backend gives
the same results. `service` speaks only to these protocols.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeVar

from cavemem_mcp.bm25 import Facts
from cavemem_mcp.model import Memory, Statistics

T = TypeVar("T")


class Snapshot(Facts, Protocol):
    """The store as it is at one moment: one read transaction. Rows of other writers are part of it at once."""

    def memory(self, id: str) -> Memory | None:
        """Return the version with this id, current or not."""
        ...

    def memories(self, *, id_prefix: str = "") -> Iterator[Memory]:
        """Yield the versions whose ids begin with a prefix, newest first; only while the snapshot is open."""
        ...

    def statistics(self) -> Statistics:
        """Count what there is."""
        ...


class Transaction(Protocol):
    """One write transaction, seen by the work that runs in it. Each change also keeps the index true."""

    def memory(self, id: str) -> Memory | None:
        """Return the version with this id, current or not, as this transaction sees it."""
        ...

    def insert(self, memory: Memory) -> None:
        """Add a version; its id must be unused."""
        ...

    def expire(self, id: str, *, valid_until: str, superseded_by: str) -> None:
        """End a current version, which exactly one row must be."""
        ...

    def relink(self, id: str, *, supersedes: str | None, superseded_by: str | None) -> None:
        """Point a version at other neighbours; it stays current or expired as it was."""
        ...

    def delete(self, id: str) -> None:
        """Remove a version, its index entries and every byte of its text."""
        ...

    def bytes_used(self) -> int:
        """Return the bytes that the memories and their index take; what deletions freed does not count."""
        ...

    def note_erasure(self, handle: str) -> None:
        """Note, with the deletion, that the original behind a handle must leave the recovery store too."""
        ...


class Store(Protocol):
    """Durable memories of one space. Safe to call from several threads and several processes at once.

    Every method raises `StoreError` for what the storage cannot do; its message says what to do next.
    """

    def read(self) -> AbstractContextManager[Snapshot]:
        """Open a snapshot: all its answers belong to one moment."""
        ...

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a transaction that commits durably when it returns and changes nothing when it raises.

        `work` may run in another caller's thread, and again if a commit that it shared failed; it must only touch its
        transaction.
        """
        ...

    def settle(self, *, waits: bool) -> int:
        """Index some of the memories that other programs wrote, and return how many are left.

        Recall is exact without it, only slower. It fails while other programs prevent it, for which it waits if it
        `waits`, as long as for a lock.
        """
        ...

    def pending_erasures(self) -> Sequence[str]:
        """Return the handles noted by `note_erasure` and not yet cleared.

        A handle without its second half stands for whatever another program's deletion of a memory has left behind it.
        """
        ...

    def has_erasures(self) -> bool:
        """Return whether the latest write found such notes, whoever made them; it costs nothing."""
        ...

    def finish_erasures(self, handles: Sequence[str], *, waits: bool) -> bool:
        """Scrub deleted bytes from the store's own files, then clear the notes of handles whose originals are gone.

        With no handle, it scrubs if there are notes and clears none. False, and the notes stay, while other programs
        prevent it, for which it waits if it `waits`, as long as for a lock.
        """
        ...

    def about(self) -> Mapping[str, str | int]:
        """Return its `path`, its `layout`, its size in `file_bytes`, and the versions of what it runs on."""
        ...

    def backup(self, target: Path) -> None:
        """Copy everything, as it is at one moment, to a new file, while other calls and programs go on."""
        ...

    def stop_waiting(self) -> None:
        """Let no call wait for other programs to finish an erasure from now on, because the store will be closed."""
        ...

    def close(self) -> None:
        """Release everything; calls in progress finish first. Closing twice is harmless."""
        ...


def open_store(folder: Path) -> Store:
    """Open the memories of a folder, which is created when absent; older layouts are brought up to date.

    Raises:
        StoreError: The folder or the file cannot be used as it is.
    """
    from cavemem_mcp.store.sqlite import SqliteStore  # SQLite loads only when a store is opened

    return SqliteStore(folder)


def open_snapshot(folder: Path, *, wait_ms_max: int) -> AbstractContextManager[Snapshot]:
    """Open what a folder holds at this moment, without making or changing anything; waits that long for locks.

    Raises:
        StoreError: On entering: there is no store, or none of this layout, or it is locked.
    """
    from cavemem_mcp.store.sqlite import read_only  # SQLite loads only when a store is opened

    return read_only(folder, wait_ms_max)
