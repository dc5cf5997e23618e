"""Which memory a request gets: the only one there is, or the one of who asks. Opens and closes them; knows no tool."""

import logging
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final, Protocol

import anyio
import anyio.to_thread

from cavemem_mcp import tokens
from cavemem_mcp.errors import CaveError, StoreError, origin_of
from cavemem_mcp.service import Cavemem
from cavemem_mcp.store.files import make_private_folder, system_errors

logger = logging.getLogger(__name__)

READY_BYTES: Final = b"ready"


class MemorySource(Protocol):
    """Where the tools get their memory from. Its methods may wait; call them in worker threads."""

    def get(self) -> Cavemem:
        """Return the memory of the request that is being served, opening it if need be.

        Raises:
            StoreError: It cannot be opened, or the server is ending.
        """
        ...

    def open_ahead(self) -> None:
        """Open what the first request needs, before it comes; a failure is logged and reported to that request."""
        ...

    def stop_waiting(self) -> None:
        """Let no operation wait for other programs to finish an erasure from now on, because the server ends."""
        ...

    def close(self) -> None:
        """Close every memory; operations in progress finish first."""
        ...


class MemoryOnDemand:
    """The memory of one server: opened once, in a worker thread, and closed at the end.

    Until it is open, and where it cannot be opened, the server still answers: a client that shows tool errors but no
    log then says why nothing can be remembered, and a cause that goes away needs no restart.
    """

    def __init__(self, open_memory: Callable[[], Cavemem]) -> None:
        self._open_memory = open_memory
        self._lock = threading.Lock()
        self._memory: Cavemem | None = None
        self._is_closed = False

    def get(self) -> Cavemem:
        """Return the memory, opening it if need be.

        Raises:
            StoreError: It cannot be opened, or the server is ending.
        """
        with self._lock:
            if self._is_closed:
                raise StoreError("the server is shutting down; nothing was done: call again after it has restarted")
            if self._memory is None:
                self._memory = self._open_memory()
            return self._memory

    def open_ahead(self) -> None:
        """Prepare what the first calls need, beside the handshake; a failure is logged here and reported to that call.

        That is the open memory, the token vocabulary, and the index of what other programs wrote.
        """
        try:
            memory = self.get()
            tokens.count("")
            memory.catch_up()
        except CaveError as error:
            if self._is_closed:  # the server ended meanwhile
                return
            logger.error("the memory cannot be prepared: %s", error.message)  # noqa: TRY400  # expected, no traceback
        except Exception as error:
            logger.error("opening the memory failed unexpectedly: %s", origin_of(error))  # noqa: TRY400  # no message

    def stop_waiting(self) -> None:
        """Let no operation wait for other programs to finish an erasure from now on, because the server ends."""
        memory = self._memory  # without the lock, for which whoever opens it may wait
        if memory is not None:
            memory.stop_waiting()

    def close(self) -> None:
        """Close the memory; operations in progress finish first."""
        with self._lock:
            self._is_closed = True
            if self._memory is not None:
                self._memory.close()


class StoresBusyError(Exception):
    """As many stores as may be open are in use."""


class _Entry:
    """An open store, or one that opens with the first request for it."""

    def __init__(self, memory: MemoryOnDemand) -> None:
        self.memory = memory
        self.users = 0
        self.used_at = 0.0


_leased: ContextVar[_Entry | None] = ContextVar("leased", default=None)
"""The store of the request that is being served, also in its worker threads."""


class StorePool:
    """The stores under one home: one for each name, and the default one (None) where nobody needs to say who they are.

    A request leases its store. Stores that nobody leases close when others need their place, or after a while.
    """

    def __init__(
        self,
        home: Path,
        open_memory: Callable[[Path], Cavemem],
        *,
        open_max: int,
        idle_seconds_max: float,
        keeps_default: bool,
    ) -> None:
        """Open nothing yet.

        Args:
            home: Holds `mem`, the default store, and `stores/<name>/mem`.
            open_memory: Opens the memory in a folder.
            open_max: Stores open at a time.
            idle_seconds_max: How long one stays open that nobody uses.
            keeps_default: Whether the default store is opened ahead and stays open.
        """
        self._home = home
        self._open_memory = open_memory
        self._open_max = open_max
        self._idle_seconds_max = idle_seconds_max
        self._keeps_default = keeps_default
        self._entries: dict[str | None, _Entry] = {}
        self._closing: _Entry | None = None
        self._lock = threading.Lock()  # around the two above, which worker threads look at too
        self._making_room = anyio.Lock()

    @asynccontextmanager
    async def lease(self, name: str | None) -> AsyncGenerator[None]:
        """Make `get` return the store of this name while the block runs. It opens with the first `get`.

        Raises:
            StoresBusyError: All that may be open are leased by others.
        """
        entry = self._taken(name, opens=False)
        if entry is None:
            async with self._making_room:
                while (entry := self._taken(name, opens=True)) is None:
                    if not await self._close_least_used():
                        raise StoresBusyError
        reset = _leased.set(entry)
        try:
            yield
        finally:
            _leased.reset(reset)
            with self._lock:
                entry.users -= 1
                entry.used_at = time.monotonic()

    def get(self) -> Cavemem:
        """Return the leased memory, opening it if need be.

        Raises:
            StoreError: It cannot be opened, or the server is ending.
        """
        entry = _leased.get()
        assert entry is not None, "a request without a store"
        return entry.memory.get()

    def open_ahead(self) -> None:
        """Open the default store where every request needs it."""
        if self._keeps_default:
            entry = self._taken(None, opens=True)
            assert entry is not None
            entry.memory.open_ahead()

    def stop_waiting(self) -> None:
        """Let no operation wait for other programs to finish an erasure from now on, because the server ends."""
        for entry in self._open_entries():
            entry.memory.stop_waiting()

    def close(self) -> None:
        """Close every store; operations in progress finish first."""
        for entry in self._open_entries():
            _close(entry)

    async def close_idle(self) -> None:
        """Close stores that nobody has used for a while, until cancelled."""
        while True:
            await anyio.sleep(self._idle_seconds_max / 4)
            async with self._making_room:
                while await self._close_least_used(before=time.monotonic() - self._idle_seconds_max):
                    pass

    async def check_ready(self) -> None:
        """Open the default store, and write to its disk.

        Raises:
            StoreError: One of them fails.
        """
        async with self.lease(None):
            await anyio.to_thread.run_sync(self._check_disk)

    def sizes(self) -> dict[str, int]:
        """Return the bytes that the files of each open store take."""
        with self._lock:
            names = list(self._entries)
        return {name or "": sum(_bytes(path) for path in self._folder(name).glob("*")) for name in names}

    def _open_entries(self) -> list[_Entry]:
        with self._lock:
            return [*self._entries.values(), *([self._closing] if self._closing else [])]

    def _folder(self, name: str | None) -> Path:
        return self._home / "mem" if name is None else self._home / "stores" / name / "mem"

    def _opened(self, name: str | None) -> Cavemem:
        if name is not None:
            make_private_folder(self._home / "stores")
            make_private_folder(self._home / "stores" / name)
        return self._open_memory(self._folder(name))

    def _taken(self, name: str | None, *, opens: bool) -> _Entry | None:
        """Return the entry of a store for one more user; None where it is new and has no place."""
        with self._lock:
            entry = self._entries.get(name)
            if entry is None:
                is_full = name is not None and len(self._entries.keys() - {None}) >= self._open_max
                if is_full or not opens:
                    return None
                entry = self._entries[name] = _Entry(MemoryOnDemand(lambda: self._opened(name)))
            entry.users += 1
            return entry

    async def _close_least_used(self, *, before: float | None = None) -> bool:
        """Close the store that was used least recently of those that nobody uses; False where there is none.

        Args:
            before: Only one that nobody has used since then, the default one too; otherwise only one that makes room.
        """
        with self._lock:
            idle = {
                name: entry.used_at
                for name, entry in self._entries.items()
                if not entry.users and (name is not None if before is None else entry.used_at <= before)
            }
            if not idle:
                return False
            closing = self._closing = self._entries.pop(min(idle, key=idle.__getitem__))
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(_close, closing)
        self._closing = None
        return True

    def _check_disk(self) -> None:
        self.get()
        folder = self._folder(None)
        with system_errors(folder), tempfile.TemporaryFile(dir=folder) as file:
            file.write(READY_BYTES)
            file.flush()


def _close(entry: _Entry) -> None:
    """Close a store; one that fails must not keep others open."""
    try:
        entry.memory.close()
    except StoreError as error:
        logger.error("a store could not be closed: %s", error.message)  # noqa: TRY400  # expected, no traceback


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # another process has just closed the store
        return 0
