"""Faults for the store, injected from outside with what SQLite offers for that; nothing of ours is replaced.

Four seams, each entered before the store is opened, and armed for one action:

- `SystemCalls`: SQLite's own table of system calls (`xSetSystemCall`), so that opening, reading, writing, truncating,
  mapping and locking fail as the kernel lets them fail. It counts every database of the process, the log and the
  shared memory too.
- `Syncs`: a VFS whose files fail to sync, which is no entry of that table.
- `Statements`: statements that raise before they run, as a busy, damaged or full database lets them.
- `Heap`: a limit on what SQLite may allocate, which it then meets wherever it happens to be.
"""

import ctypes
import fcntl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import apsw

_INT, _LONG, _TEXT, _ADDRESS = ctypes.c_int, ctypes.c_ssize_t, ctypes.c_char_p, ctypes.c_void_p
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "open": (_INT, _TEXT, _INT, _INT),
    "openDirectory": (_INT, _TEXT, _ADDRESS),
    "unlink": (_INT, _TEXT),
    "ftruncate": (_INT, _INT, ctypes.c_int64),
    "fcntl": (_INT, _INT, _INT, _ADDRESS),
    "mmap": (_ADDRESS, _ADDRESS, ctypes.c_size_t, _INT, _INT, _INT, ctypes.c_int64),
    "read": (_LONG, _INT, _ADDRESS, ctypes.c_size_t),
    "write": (_LONG, _INT, _ADDRESS, ctypes.c_size_t),
    "pread": (_LONG, _INT, _ADDRESS, ctypes.c_size_t, ctypes.c_int64),
    "pwrite": (_LONG, _INT, _ADDRESS, ctypes.c_size_t, ctypes.c_int64),
    "pread64": (_LONG, _INT, _ADDRESS, ctypes.c_size_t, ctypes.c_int64),
    "pwrite64": (_LONG, _INT, _ADDRESS, ctypes.c_size_t, ctypes.c_int64),
}
"""Result and arguments of the entries of SQLite's table that are watched."""
READS = frozenset({"read", "pread", "pread64"})
WRITES = frozenset({"write", "pwrite", "pwrite64"})
ALL = frozenset(_SIGNATURES)
_PAGE_BYTES = 4096
_TREE_PAGES = b"\x02\x05\x0a\x0d"
"""First bytes of pages that, read as zeros, are seen to be damaged."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What goes wrong.

    Attributes:
        name: For people.
        calls: The system calls that count; elsewhere all calls do.
        code: What the kernel, or SQLite, answers; 0 for a page that is read as zeros.
        may_last: Whether nothing waits for long when it lasts.
        lasts: Whether every counted call after the first that failed fails as well.
    """

    name: str
    calls: frozenset[str] = frozenset()
    code: int
    may_last: bool = True
    lasts: bool = False


class Seam(Protocol):
    """A place where faults are injected."""

    def arm(self, fault: Fault, at: int) -> None:
        """Let the call number `at` from now on fail."""
        ...

    def disarm(self) -> bool:
        """Let everything succeed again; True when a call has failed since `arm`."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


class _Countdown:
    """Says of each call whether it fails."""

    def __init__(self) -> None:
        self._fault: Fault | None = None
        self._left = 0
        self._has_failed = False

    def arm(self, fault: Fault, at: int) -> None:
        self._fault, self._left, self._has_failed = fault, at, False

    def disarm(self) -> bool:
        self._fault = None
        return self._has_failed

    def failure(self, call: str = "") -> Fault | None:
        """Count a call; return the fault that it meets."""
        fault = self._fault
        if fault is None or (fault.calls and call not in fault.calls):
            return None
        self._left -= 1
        if self._left > 0 or (self._left < 0 and not fault.lasts):
            return None
        self._has_failed = True
        return fault


class SystemCalls(_Countdown):
    """SQLite's system calls, on their way to the kernel."""

    def __init__(self) -> None:
        super().__init__()
        self._vfs: Any = None
        self._callbacks: list[object] = []

    def __enter__(self) -> Self:
        self._vfs = apsw.VFS("system_calls", "unix")  # a name through which the table is reached, not used by any file
        for name, signature in _SIGNATURES.items():
            if address := self._vfs.xGetSystemCall(name):
                kind = ctypes.CFUNCTYPE(*signature, use_errno=True)
                callback = kind(self._watched(name, kind(address)))
                self._callbacks.append(callback)
                self._vfs.xSetSystemCall(name, ctypes.cast(callback, _ADDRESS).value)
        return self

    def __exit__(self, *_: object) -> None:
        for name in _SIGNATURES:
            if self._vfs.xGetSystemCall(name):
                self._vfs.xSetSystemCall(name, 0)
        self._vfs.unregister()

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if self._fault is None or (name == "fcntl" and not _takes_a_lock(arguments)):
                return real(*arguments)
            if self._fault.code == 0:
                return self._misread(name, real, arguments)
            fault = self.failure(name)
            if fault is None:
                return real(*arguments)
            ctypes.set_errno(fault.code)
            return -1

        return call

    def _misread(self, name: str, real: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """Read a page of a b-tree as zeros, as a disk does that lost it.

        Only from the database: what is misread from the log while it is moved into the database damages that, and
        nothing could tell.
        """
        count = real(*arguments)
        if name not in READS or count != _PAGE_BYTES or arguments[-1] % _PAGE_BYTES:
            return count
        address = arguments[1]
        if ctypes.string_at(address, 1) in _TREE_PAGES and self.failure(name):
            ctypes.memset(address, 0, count)
        return count


def _takes_a_lock(arguments: Sequence[Any]) -> bool:
    """Tell taking a lock from letting it go, which does not fail on local disks."""
    _, command, address = arguments
    is_lock = command in (fcntl.F_SETLK, fcntl.F_SETLKW)
    return is_lock and ctypes.c_short.from_address(address).value != fcntl.F_UNLCK


class Syncs(_Countdown):
    """Files that fail to reach the disk."""

    def __enter__(self) -> Self:
        seam = self

        class File(apsw.VFSFile):
            def __init__(self, name: Any, flags: list[int]) -> None:
                super().__init__("unix", name, flags)

            def xSync(self, flags: int) -> None:
                if (fault := seam.failure()) is not None:
                    raise apsw.exception_for(fault.code)
                super().xSync(flags)

        class Disk(apsw.VFS):
            def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
                return File(name, flags)

        self._vfs = Disk("syncs", "unix", makedefault=True)
        return self

    def __exit__(self, *_: object) -> None:
        apsw.set_default_vfs("unix")
        self._vfs.unregister()


class Statements(_Countdown):
    """Statements of connections that are opened while this is entered."""

    def __enter__(self) -> Self:
        apsw.connection_hooks.append(self._watch)
        return self

    def __exit__(self, *_: object) -> None:
        apsw.connection_hooks.remove(self._watch)

    def _watch(self, connection: apsw.Connection) -> None:
        connection.exec_trace = self._trace

    def _trace(self, *_: object) -> bool:
        if (fault := self.failure()) is not None:
            raise apsw.exception_for(fault.code)
        return True


class Heap:
    """The memory that SQLite may use; `at` counts KiB beyond what it uses already."""

    def arm(self, fault: Fault, at: int) -> None:
        del fault
        apsw.hard_heap_limit(apsw.memory_used() + at * 1024)

    def disarm(self) -> bool:
        apsw.hard_heap_limit(0)
        return True  # whoever counts knows from `needed` where to end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        apsw.hard_heap_limit(0)


def heap_needed(act: Callable[[], object]) -> int:
    """Return how many KiB an action takes at most."""
    before = apsw.memory_used()
    apsw.memory_high_water(reset=True)
    act()
    return (apsw.memory_high_water() - before) // 1024 + 1
