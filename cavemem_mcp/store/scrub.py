"""Erase what SQLite has stopped using. Knows SQLite's file format; the caller knows what was deleted.

`secure_delete` overwrites a cell when it is freed. It is not enough: when SQLite rebalances a b-tree it rebuilds pages
and leaves copies of the cells that moved away in their unallocated middle, where no later delete looks (about one
deletion in a thousand leaves words behind that way); and other programs may write to the file without `secure_delete`.
All these bytes are unspecified in the file format (https://sqlite.org/fileformat2.html): zeroing them changes nothing
that SQLite reads.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from struct import Struct
from typing import Final, Protocol, cast

import apsw

from cavemem_mcp.store import files

NOTES_TABLE: Final = "CREATE TABLE erasures(handle TEXT PRIMARY KEY)"
"""Noted in the transaction that deletes something, cleared when its bytes are gone from the file."""

_PAGES_READ: Final = 256
_PAGES_MAX: Final = 1 << 25
"""With more pages than this, an overflow page could look like a b-tree page."""
_HEADER_BYTES: Final = {2: 12, 5: 12, 10: 8, 13: 8}
"""Size of a b-tree page's header by the page's first byte: interior and leaf pages of indexes and tables."""
_FILE_HEADER_BYTES: Final = 100
_LOCK_BYTE: Final = 1 << 30
"""The page that holds this offset is never used."""
_TWO: Final = Struct(">H").unpack_from
_TWO_TWO: Final = Struct(">HH").unpack_from
_TWO_TWO_TWO: Final = Struct(">HHH").unpack_from
_FOUR_FOUR: Final = Struct(">II").unpack_from


def pending(connection: files.Connection) -> list[str]:
    """Return the noted handles whose deletion is not scrubbed yet."""
    return [handle for (handle,) in connection.execute("SELECT handle FROM erasures")]


def note(connection: files.Connection, handles: Sequence[str]) -> None:
    """Note, in the caller's transaction, that a deletion is to be scrubbed."""
    connection.executemany("INSERT OR IGNORE INTO erasures VALUES (?)", [(handle,) for handle in handles])


def finish(path: Path, handles: Sequence[str], deadline: float) -> bool:
    """Make deleted bytes unreadable in a database file and its log, then clear the notes of their deletion.

    False, and the notes stay, when other programs left no moment for it until the deadline.

    Unused bytes are overwritten under the write lock while the log is empty: the file then holds the current pages and
    nobody can write one. The notes are cleared in the same transaction, on a connection of its own: it has seen no old
    page, and its commit makes every other connection drop the pages it remembers, stale copies included.
    """
    with closing(files.connect(path)) as connection:
        while files.truncate_log(connection, deadline):
            with files.transaction(connection, deadline):
                if files.log_bytes(path) == 0:  # nobody wrote since the log was emptied
                    if _clear(connection, handles):  # otherwise another process has scrubbed for these notes
                        _zero_unused(path)
                    return True
    return False


def _clear(connection: files.Connection, handles: Sequence[str]) -> int:
    cleared = 0
    for handle in handles:
        connection.execute("DELETE FROM erasures WHERE handle = ?", (handle,))
        cleared += connection.changes()
    return cleared


def _zero_unused(path: Path) -> None:
    # Through SQLite's own file layer: closing any other descriptor of the file would drop the process's POSIX locks.
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE, 0]
    file = cast("_File", apsw.VFSFile("", str(path), flags))
    try:
        layout = _Layout(file.xRead(_FILE_HEADER_BYTES, 0), file.xFileSize())
        if not layout.is_ours_to_change:
            return
        dirty = [*_free_pages(file, layout), *_unused_in_pages(file, layout)]
        for start, end in dirty:
            file.xWrite(bytes(end - start), start)
        if dirty:
            file.xSync(apsw.SQLITE_SYNC_NORMAL)
    finally:
        file.xClose()


class _File(Protocol):
    """The part of `apsw.VFSFile` used here, with types."""

    def xRead(self, amount: int, offset: int) -> bytes: ...
    def xWrite(self, data: bytes, offset: int) -> None: ...
    def xSync(self, flags: int) -> None: ...
    def xFileSize(self) -> int: ...
    def xClose(self) -> None: ...


class _Layout:
    """What a database file's header says about its pages; they are numbered from 1."""

    def __init__(self, header: bytes, file_bytes: int) -> None:
        self.page_bytes: int = _TWO(header, 16)[0] if header[16:18] != b"\0\1" else 65536
        self.pages = file_bytes // self.page_bytes
        self.free_trunk, self.free_pages = _FOUR_FOUR(header, 32)
        self._has_maps = any(header[52:56])  # an auto-vacuum database
        # Reserved bytes are another program's checksums or encryption.
        self.is_ours_to_change = header[20] == 0 and self.pages <= _PAGES_MAX

    def start(self, page: int) -> int:
        """Return where a free page starts.

        Raises:
            apsw.CorruptError: There is no such page.
        """
        if not 1 < page <= self.pages:
            raise apsw.CorruptError("the list of free pages is damaged")
        return (page - 1) * self.page_bytes

    def is_map(self, page: int) -> bool:
        """Return whether a page is one of the pointer maps of an auto-vacuum database, which resemble b-tree pages."""
        if not self._has_maps or page < 2:
            return False
        mapped_by_one = self.page_bytes // 5
        map_page = (page - 2) // (mapped_by_one + 1) * (mapped_by_one + 1) + 2
        return page == map_page + (map_page == _LOCK_BYTE // self.page_bytes + 1)


def _free_pages(file: _File, layout: _Layout) -> Iterator[tuple[int, int]]:
    """Yield the byte ranges of free pages that are not zero."""
    trunk, left = layout.free_trunk, layout.free_pages
    while trunk and left > 0:
        start = layout.start(trunk)
        page = file.xRead(layout.page_bytes, start)
        trunk, leaves = _FOUR_FOUR(page, 0)
        if leaves > layout.page_bytes // 4 - 2:
            raise apsw.CorruptError("the list of free pages is damaged")
        left -= 1 + leaves
        listed_end = 8 + 4 * leaves
        if any(page[listed_end:]):
            yield start + listed_end, start + layout.page_bytes
        for leaf in Struct(f">{leaves}I").unpack_from(page, 8):
            start = layout.start(leaf)
            if any(file.xRead(layout.page_bytes, start)):
                yield start, start + layout.page_bytes


def _unused_in_pages(file: _File, layout: _Layout) -> Iterator[tuple[int, int]]:
    """Yield the byte ranges in b-tree pages that hold no cell and are not zero."""
    zeros = bytes(layout.page_bytes)
    for first in range(1, layout.pages + 1, _PAGES_READ):
        offset = (first - 1) * layout.page_bytes
        chunk = file.xRead(min(_PAGES_READ, layout.pages + 1 - first) * layout.page_bytes, offset)
        for at in range(0, len(chunk), layout.page_bytes):
            header_at = at if first > 1 or at > 0 else _FILE_HEADER_BYTES
            if chunk[header_at] in _HEADER_BYTES and not layout.is_map(first + at // layout.page_bytes):
                for start, end in _unused(chunk, at, header_at, layout.page_bytes):
                    if start < end <= at + layout.page_bytes and chunk[start:end] != zeros[: end - start]:
                        yield offset + start, offset + end


def _unused(chunk: bytes, at: int, header_at: int, page_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the byte ranges of the gap and the free blocks of the b-tree page at `at`."""
    block, cells, content = _TWO_TWO_TWO(chunk, header_at + 1)
    yield header_at + _HEADER_BYTES[chunk[header_at]] + 2 * cells, at + (content or 65536)
    while 0 < block <= page_bytes - 4:
        following, size = _TWO_TWO(chunk, at + block)
        yield at + block + 4, at + block + size
        block = following if following > block else 0
