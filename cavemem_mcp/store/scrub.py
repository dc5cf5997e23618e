"""Erase what SQLite has stopped using. Knows SQLite's file format; the caller knows what was deleted.

`secure_delete` overwrites a cell when it is freed. It is not enough: when SQLite rebalances a b-tree it rebuilds pages
and leaves copies of the cells that moved away in their unallocated middle, where no later delete looks (about one
deletion in a thousand leaves words behind that way); and other programs may write to the file without `secure_delete`.
All these bytes are unspecified in the file format (https://sqlite.org/fileformat2.html): zeroing them changes nothing
that SQLite reads.

They are overwritten in place, beside bytes that are in use. A disk that loses power during such a write must leave
those as they were: SQLite assumes the same of every disk (`SQLITE_IOCAP_POWERSAFE_OVERWRITE`, its default).
"""

import threading
import time
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
_PAGES_MAX: Final = (1 << 25) - 1
"""With more pages than this, an overflow page, which begins with a page's number, could look like a b-tree page."""
_HEADER_BYTES: Final = {2: 12, 5: 12, 10: 8, 13: 8}
"""Size of a b-tree page's header by the page's first byte: interior and leaf pages of indexes and tables."""
_FILE_HEADER_BYTES: Final = 100
# The joins' order is ours, so that only these trees are walked: all but the largest of those that never overflow.
_OVERFLOW_TAILS: Final = """
SELECT s.pageno, s.unused FROM sqlite_schema t CROSS JOIN dbstat s ON s.name = t.name
WHERE t.rootpage > 0 AND t.name NOT IN ('idx_postings', 'idx_docs', 'sqlite_autoindex_idx_docs_1')
  AND s.pagetype = 'overflow' AND s.unused > 0
"""
_LOCK_BYTE: Final = 1 << 30
"""The page that holds this offset is never used."""
_TWO: Final = Struct(">H").unpack_from
_TWO_TWO: Final = Struct(">HH").unpack_from
_TWO_TWO_TWO: Final = Struct(">HHH").unpack_from
_FOUR_FOUR: Final = Struct(">II").unpack_from


def pending(connection: files.Connection) -> list[str]:
    """Return the noted handles whose deletion is not scrubbed yet."""
    return [handle for (handle,) in connection.execute("SELECT handle FROM erasures")]


def has_pending(connection: files.Connection) -> bool:
    """Return whether any deletion is not scrubbed yet."""
    return bool(connection.execute("SELECT EXISTS (SELECT 1 FROM erasures)").get)


def note(connection: files.Connection, handles: Sequence[str]) -> None:
    """Note, in the caller's transaction, that a deletion is to be scrubbed."""
    connection.executemany("INSERT OR IGNORE INTO erasures VALUES (?)", [(handle,) for handle in handles])


def finish(
    path: Path, handles: Sequence[str], *, deadline: float, writing: threading.Lock, stopped: threading.Event
) -> bool:
    """Make deleted bytes unreadable in a database file and its log, then clear the notes of these handles.

    The notes of other handles stay, and while any is left, no handle at all means to erase and clear nothing yet.
    False, and all notes stay, when other programs left no moment for it until the deadline or until `stopped` was set:
    an old state that another program reads cannot go. Our own writers need not wait for that: `writing`, the lock
    between them, is held only while there is something to do.
    """
    since = time.monotonic()
    with closing(files.connect(path)) as connection:
        while True:
            if writing.acquire(timeout=max(deadline - time.monotonic(), 0)):
                try:
                    if _finish_now(path, connection, handles):
                        return True
                finally:
                    writing.release()
            if time.monotonic() >= deadline or stopped.wait(files.retry_seconds(since, deadline)):
                return False


def _finish_now(path: Path, connection: files.Connection, handles: Sequence[str]) -> bool:
    """Do it unless other programs are in the way at this moment.

    Unused bytes are overwritten under the write lock while the log is empty: the file then holds the current pages and
    nobody can write one. The notes are cleared after that, in the same transaction and on a connection of its own: it
    has read no page that it changes before, and its commit makes every other connection drop the pages it remembers,
    stale copies included.
    """
    now = time.monotonic()
    try:
        if not files.truncate_log(connection, now):
            return False
        with files.transaction(connection, now):
            if files.log_bytes(path):  # somebody has written since the log was emptied
                return False
            noted = pending(connection)
            if not set(noted).isdisjoint(handles or noted):  # otherwise another process has scrubbed for these notes
                _zero_unused(path, connection)
            connection.executemany("DELETE FROM erasures WHERE handle = ?", [(handle,) for handle in handles])
    except apsw.BusyError:
        return False
    return True


def _zero_unused(path: Path, connection: files.Connection) -> None:
    # Through SQLite's own file layer: closing any other descriptor of the file would drop the process's POSIX locks.
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE, 0]
    file = cast("_File", apsw.VFSFile("", str(path), flags))
    try:
        layout = _Layout(file.xRead(_FILE_HEADER_BYTES, 0), file.xFileSize())
        if not layout.is_ours_to_change:
            return
        trunks, ends = set[int](), set[int]()
        dirty = [*_free_pages(file, layout, trunks), *_unused_in_pages(file, layout, ends)]
        if ends - trunks:  # walking the trees takes a while in large stores
            dirty += _unused_in_overflows(file, layout, connection)
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

    def read(self, file: _File, page: int) -> bytes:
        """Return a page that the list of free pages names."""
        if not 1 < page <= self.pages:
            raise _damaged_free_list()
        return file.xRead(self.page_bytes, (page - 1) * self.page_bytes)

    def is_map(self, page: int) -> bool:
        """Return whether a page is one of the pointer maps of an auto-vacuum database, which resemble b-tree pages."""
        if not self._has_maps or page < 2:
            return False
        mapped_by_one = self.page_bytes // 5
        map_page = (page - 2) // (mapped_by_one + 1) * (mapped_by_one + 1) + 2
        return page == map_page + (map_page == _LOCK_BYTE // self.page_bytes + 1)


def _free_pages(file: _File, layout: _Layout, trunks: set[int]) -> Iterator[tuple[int, int]]:
    """Yield the byte ranges of free pages that are not zero; tell which of them list others."""
    trunk, left = layout.free_trunk, layout.free_pages
    while trunk and left > 0:
        page = layout.read(file, trunk)
        trunks.add(trunk)
        following, count = _FOUR_FOUR(page, 0)
        if count > layout.page_bytes // 4 - 2:
            raise _damaged_free_list()
        left -= 1 + count
        listed_end = 8 + 4 * count
        if any(page[listed_end:]):
            yield (trunk - 1) * layout.page_bytes + listed_end, trunk * layout.page_bytes
        for leaf in Struct(f">{count}I").unpack_from(page, 8):
            if any(layout.read(file, leaf)):
                yield (leaf - 1) * layout.page_bytes, leaf * layout.page_bytes
        trunk = following


def _damaged_free_list() -> apsw.CorruptError:
    return apsw.CorruptError("the list of free pages is damaged")


def _unused_in_overflows(file: _File, layout: _Layout, connection: files.Connection) -> Iterator[tuple[int, int]]:
    """Yield the byte ranges behind the ends of long texts that are not zero."""
    if connection.execute("PRAGMA quick_check(1)").get != "ok":  # `dbstat` crashes on some damaged pages
        raise apsw.CorruptError("pages are damaged")
    for page, unused in connection.execute(_OVERFLOW_TAILS):
        if any(file.xRead(unused, page * layout.page_bytes - unused)):
            yield page * layout.page_bytes - unused, page * layout.page_bytes


def _unused_in_pages(file: _File, layout: _Layout, ends: set[int]) -> Iterator[tuple[int, int]]:
    """Yield the byte ranges in b-tree pages that hold no cell and are not zero; tell which pages may end a text."""
    zeros = bytes(layout.page_bytes)
    for first in range(1, layout.pages + 1, _PAGES_READ):
        offset = (first - 1) * layout.page_bytes
        chunk = file.xRead(min(_PAGES_READ, layout.pages + 1 - first) * layout.page_bytes, offset)
        for at in range(0, len(chunk), layout.page_bytes):
            header_at = at if first > 1 or at > 0 else _FILE_HEADER_BYTES
            page = first + at // layout.page_bytes
            if not any(chunk[at : at + 4]) and chunk[at : at + layout.page_bytes] != zeros:
                ends.add(page)
            elif chunk[header_at] in _HEADER_BYTES and not layout.is_map(page):
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
