"""Keep and recover the originals of shortened hits in `ccr.db`. Knows nothing of memories or of how hits are made.

Why no original outlives its memory, although the two files do not commit together: whoever forgets first commits that
the memory is gone, then discards its original. `keep` asks `is_wanted` while it holds the write lock of `ccr.db`. If it
is told yes, the memory was not gone yet, so the discard begins later, waits for the lock and finds the kept original.
If the memory is gone already, `keep` is told so and keeps nothing. For the same reason `discard` looks for originals
only under the write lock.
"""

import logging
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import apsw

from cavemem_mcp.errors import StoreError
from cavemem_mcp.model import handle_of
from cavemem_mcp.store import files, scrub, survey
from cavemem_mcp.store.files import Connection
from cavemem_mcp.store.reading import reading

FILE_NAME: Final = "ccr.db"
BYTES_MAX: Final = 512 * 1024 * 1024
"""Default bound of the sum of stored sizes."""
ORIGINAL_BYTES_MAX: Final = 64 * 1024 * 1024
"""Largest original kept; a stored one that claims to be larger is damaged."""
LAYOUT: Final = 1
"""`PRAGMA user_version` of `ccr.db`."""

OBJECTS: Final = {
    "originals": """CREATE TABLE originals(
        handle TEXT PRIMARY KEY, created_at TEXT NOT NULL, content_type TEXT NOT NULL, compressor TEXT NOT NULL,
        tokens_before INTEGER NOT NULL, tokens_after INTEGER NOT NULL, size INTEGER NOT NULL,
        original BLOB NOT NULL)""",
    "originals_size": "CREATE INDEX originals_size ON originals(size)",
    "erasures": scrub.NOTES_TABLE,
}
"""The layout; `original` is zstandard-compressed, `size` counts its bytes as stored, the index alone gives the sum."""
_INSERT: Final = """
INSERT OR IGNORE INTO originals(
  handle, created_at, content_type, compressor, tokens_before, tokens_after, size, original)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Original:
    """An original to keep, with what was made of it."""

    handle: str
    text: str
    created_at: str
    content_type: str = "text"
    compressor: str
    tokens_before: int
    tokens_after: int


class RecoveryStore:
    """Originals by handle. Safe to call from several threads and processes; the file appears with the first original.

    Every method raises `StoreError` for what the storage cannot do; its message says what to do next.

    Args:
        folder: Where `ccr.db` is.
        bytes_max: Bound of the sum of stored sizes; what does not fit is not kept, and nothing is dropped for it.
    """

    def __init__(self, folder: Path, *, bytes_max: int = BYTES_MAX) -> None:
        self._path = folder.absolute() / FILE_NAME
        self._bytes_max = bytes_max
        self._using = threading.Lock()
        self._connection: Connection | None = None
        self._closing = threading.Event()
        self._is_closed = False

    def keep(self, original: Original, *, is_wanted: Callable[[], bool]) -> bool:
        """Keep an original; False when there is no room or `is_wanted`, asked under the write lock, says no."""
        import zstandard  # only those who shorten or recover pay for it

        data = original.text.encode()
        if len(data) > ORIGINAL_BYTES_MAX:
            return False
        compressed = zstandard.ZstdCompressor().compress(data)
        if len(compressed) > self._bytes_max:
            return False
        with self._opened(creating=True) as (connection, deadline):
            assert connection is not None
            if connection.execute("SELECT 1 FROM originals WHERE handle = ?", (original.handle,)).get:
                return True
            with files.transaction(connection, deadline):
                stored_bytes = connection.execute("SELECT coalesce(sum(size), 0) FROM originals").get
                is_kept = stored_bytes + len(compressed) <= self._bytes_max and is_wanted()
                if is_kept:
                    counts = (original.tokens_before, original.tokens_after, len(compressed))
                    made = (original.created_at, original.content_type, original.compressor)
                    connection.execute(_INSERT, (original.handle, *made, *counts, compressed))
        return is_kept

    def recover(self, handle: str, *, has_memory: bool = True) -> bytes | None:
        """Return the exact bytes, checked against the handle, or None when they are not kept here.

        Args:
            handle: What a hit or the Go program gave out.
            has_memory: Whether its memory is stored; an original that we kept for a memory is nobody's without it.
        """
        with self._opened_to_read() as connection:
            if connection is None:
                return None
            compressed = None
            if has_memory:
                compressed = connection.execute(
                    "SELECT CAST(original AS BLOB) FROM originals WHERE handle = ?", (handle,)
                ).get
            candidates = [] if compressed is not None else _values_of_recoveries(connection, handle)
        if compressed is not None:
            candidates = [_decompressed(compressed)]
        if not candidates:
            return None
        for data in candidates:
            if data is not None and handle_of(data) == handle:
                return data
        raise StoreError(f"{self._path}: the original behind {handle} is damaged; restore a backup of the file")

    def discard(self, handles: Sequence[str], *, waits: bool = True) -> bool:
        """Erase originals and every trace of their bytes; False when other programs prevent the latter for now.

        Args:
            handles: Of which each may be the first half of one, for all that begin with it.
            waits: Whether to wait for other programs, as long as for a lock.
        """
        deadline = files.busy_deadline() if waits else time.monotonic()
        with self._opened(creating=False) as (connection, _):
            if connection is None:
                return True
            try:
                with files.transaction(connection, deadline):
                    discarded = [handle for handle in handles if _delete(connection, handle)]
                    scrub.note(connection, discarded)
            except apsw.BusyError:
                if waits:
                    raise
                return False
            noted = scrub.pending(connection)
        return not noted or self._scrubbed(noted, deadline, self._using)

    def file_bytes(self) -> int:
        """Return the bytes that the originals take on disk."""
        return files.size(self._path)

    def backup(self, target: Path) -> bool:
        """Copy all originals, as they are at one moment, to a new file; False, and no file, while there are none."""
        if not files.is_there(self._path):
            return False
        with files.store_errors(self._path):
            survey.copy(self._path, target)
        return True

    def stop_waiting(self) -> None:
        """Let no operation wait for other programs from now on, because the store will be closed."""
        self._closing.set()

    def close(self) -> None:
        """Close the file; calls in progress finish first. Closing twice is harmless."""
        self.stop_waiting()
        with self._using, files.store_errors(self._path):
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextmanager
    def _opened(self, *, creating: bool) -> Generator[tuple[Connection | None, float]]:
        """Hold the store for one operation; yield the connection, None while there is no file, and the deadline."""
        with self._held() as deadline, self._lent(self._taken(creating=creating)) as connection:
            yield connection, deadline

    @contextmanager
    def _opened_to_read(self) -> Generator[Connection | None]:
        """Hold the store for one operation that only reads, also where the file cannot be written."""
        with self._held():
            try:
                connection = self._taken(creating=False)
            except files.UNWRITABLE:
                with reading(self._path) as connection:
                    files.refuse_foreign(connection, LAYOUT)
                    yield connection
                return
            with self._lent(connection):
                yield connection

    @contextmanager
    def _held(self) -> Generator[float]:
        """Hold the store for one operation; yield its deadline."""
        deadline = files.busy_deadline()
        with files.held(self._using, self._path, deadline), files.store_errors(self._path):
            if self._is_closed:
                raise StoreError(f"{self._path} was closed; open the store again")
            yield deadline

    def _taken(self, *, creating: bool) -> Connection | None:
        """Take the connection, opening the file if it is there or to be made; None otherwise."""
        connection, self._connection = self._connection, None
        if connection is None and (creating or files.is_there(self._path)):
            connection = self._open()
        return connection

    @contextmanager
    def _lent(self, connection: Connection | None) -> Generator[Connection | None]:
        if connection is None:
            yield None
        else:
            with files.lent(connection, self._keep_connection):
                yield connection

    def _keep_connection(self, connection: Connection) -> None:
        self._connection = connection

    def _open(self) -> Connection:
        files.make_private_folder(self._path.parent)
        files.make_private_file(self._path)
        connection = files.connect(self._path)
        try:
            files.prepare(connection, layout=LAYOUT, is_current=lambda c: not _missing(c), migrate=_migrate)
            self._scrub_at_open(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _scrub_at_open(self, connection: Connection) -> None:
        """Erase what a process left that crashed before it could; until that is possible, the rest is of use."""
        if noted := scrub.pending(connection):
            try:
                self._scrubbed(noted, time.monotonic(), threading.Lock())  # `_using` is held already
            except StoreError as error:
                logger.warning("what was forgotten is not erased everywhere yet: %s", error.message)

    def _scrubbed(self, handles: Sequence[str], deadline: float, writing: threading.Lock) -> bool:
        with files.store_errors(self._path):
            return scrub.finish(self._path, handles, deadline=deadline, writing=writing, stopped=self._closing)


def count(connection: Connection) -> tuple[int, int]:
    """Return how many originals of ours a snapshot of the file has, and how many of them are damaged."""
    total = damaged = 0
    if "originals" not in _missing(connection):
        kept = connection.execute("SELECT CAST(handle AS BLOB), CAST(original AS BLOB) FROM originals")
        for handle, compressed in kept:
            total += 1
            original = _decompressed(compressed)
            damaged += original is None or handle_of(original).encode() != handle
    return total, damaged


def _decompressed(compressed: bytes) -> bytes | None:
    """Return the content of a frame, or None where it is damaged; never more than one original may have."""
    import zstandard

    try:
        if not 0 <= zstandard.frame_content_size(compressed) <= ORIGINAL_BYTES_MAX:
            return None
        return zstandard.ZstdDecompressor().decompress(compressed, allow_extra_data=False)
    except zstandard.ZstdError:
        return None


def _missing(connection: Connection) -> list[str]:
    return files.missing(connection, OBJECTS)


def _migrate(connection: Connection) -> None:
    for name in _missing(connection):
        connection.execute(OBJECTS[name])


def _columns_of_recoveries(connection: Connection) -> list[str]:
    """Return the columns of the Go program's table, of which only `handle` is certain; none where it is absent."""
    columns = [name for (name,) in connection.execute("SELECT name FROM pragma_table_info('recoveries')")]
    return columns if "handle" in columns else []


def _values_of_recoveries(connection: Connection, handle: str) -> list[Any]:
    """Return what the Go program's table has under a handle, as bytes; what hashes to the handle is the original."""
    columns = _columns_of_recoveries(connection)
    if not columns:
        return []
    quoted = ('CAST("{}" AS BLOB)'.format(name.replace('"', '""')) for name in columns)
    select = f"SELECT {', '.join(quoted)} FROM recoveries WHERE handle = ?"  # noqa: S608 quoted names of columns
    rows = connection.execute(select, (handle,))
    return [value for row in rows for value in row]


def _delete(connection: Connection, handle: str) -> bool:
    connection.execute("DELETE FROM originals WHERE handle >= ?1 AND handle < ?1 || 'g'", (handle,))
    deleted = connection.changes()
    if _columns_of_recoveries(connection):
        connection.execute("DELETE FROM recoveries WHERE handle = ?", (handle,))
        deleted += connection.changes()
    return deleted > 0
