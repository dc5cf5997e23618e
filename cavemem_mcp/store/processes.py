"""Which other processes have a file open or locked, as far as Linux shows it to this user."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from cavemem_mcp.store import files

_LOCKS: Final = Path("/proc/locks")
_WAL_WRITE_BYTE: Final = 120
"""The byte of `-shm` whose lock is the right to write (https://sqlite.org/walformat.html)."""


class Process(NamedTuple):
    """A process that uses a database.

    Attributes:
        id: The process id.
        name: Its program's name.
        is_writing: Whether it holds the write lock.
        is_stopped: Whether it was stopped, so that it will not let go by itself.
    """

    id: int
    name: str
    is_writing: bool
    is_stopped: bool


def users_of(path: Path) -> list[Process] | None:
    """Return the other processes that use a database; None where the system does not tell."""
    try:
        locks = _LOCKS.read_text()
    except OSError:
        return None
    identities = {
        identity for part in (path, files.log_of(path), Path(f"{path}-shm")) if (identity := files.identity(part))
    }
    shared = files.identity(Path(f"{path}-shm"))
    lockers = list(_lockers(locks, identities, shared))
    writers = {process for process, is_writing in lockers if is_writing}
    found = ({process for process, _ in lockers} | set(_openers(identities))) - {os.getpid()}
    return [_described(process, is_writing=process in writers) for process in sorted(found) if process > 0]


def _lockers(
    locks: str, identities: set[tuple[int, int]], shared: tuple[int, int] | None
) -> Iterator[tuple[int, bool]]:
    """Yield who holds a lock of these files, and whether that is the right to write."""
    for line in locks.splitlines():
        # For example: 1: POSIX  ADVISORY  WRITE 6512 fe:00:2450233 120 120
        fields = line.split()
        if len(fields) != 8:  # one with an arrow waits for a lock
            continue
        _, _, _, access, process, file, first, last = fields
        major, minor, inode = file.split(":")
        identity = os.makedev(int(major, 16), int(minor, 16)), int(inode)
        if identity in identities:
            covers = int(first) <= _WAL_WRITE_BYTE and (last == "EOF" or int(last) >= _WAL_WRITE_BYTE)
            yield int(process), access == "WRITE" and identity == shared and covers


def _openers(identities: set[tuple[int, int]]) -> Iterator[int]:
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with suppress(OSError):  # it has ended, or it is another user's
            for descriptor in (process / "fd").iterdir():
                with suppress(OSError):
                    status = descriptor.stat()
                    if (status.st_dev, status.st_ino) in identities:
                        yield int(process.name)
                        break


def _described(process: int, *, is_writing: bool) -> Process:
    name, state = "?", ""
    with suppress(OSError):
        # The name stands in parentheses and may itself have some.
        before, _, after = Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")
        name, state = before.partition("(")[2], after.split()[0]
    return Process(process, name, is_writing, is_stopped=state in ("T", "t"))
