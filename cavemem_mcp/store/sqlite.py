"""The store in SQLite: one writing connection, a pool of reading ones, each operation in its transaction.

Owns connections and transactions. Files are `files`'s, tables `schema`'s, the index `index`'s, erasing `scrub`'s.
"""

import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

import apsw

from cavemem_mcp.calls import Calls
from cavemem_mcp.errors import StoreError
from cavemem_mcp.model import Memory, Statistics
from cavemem_mcp.store import files, schema, scrub, survey
from cavemem_mcp.store.commits import SharedCommits
from cavemem_mcp.store.files import Connection
from cavemem_mcp.store.index import ContradictionError, IndexFacts, IndexWriter, decoded, one, rebuild
from cavemem_mcp.store.reading import reading

T = TypeVar("T")

FILE_NAME: Final = "mem.db"
READERS_IDLE_MAX: Final = 4
"""Reading connections that stay open while nobody reads."""

# Everything is read as bytes: text of other programs may be no valid UTF-8, or no text at all.
_MEMORY: Final = """
SELECT CAST(text AS BLOB), CAST(created_at AS BLOB), CAST(valid_from AS BLOB), CAST(valid_until AS BLOB),
  CAST(supersedes AS BLOB), CAST(superseded_by AS BLOB)
FROM memories WHERE id = ?
"""
_INSERT: Final = """
INSERT INTO memories(id, text, created_at, valid_from, valid_until, supersedes, superseded_by)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""

# An import touches so many pages that the usual 2 MiB cache and checkpoints of 4 MiB would double its time.
_ROOM_TO_WRITE: Final = {"cache_size": -32000, "wal_autocheckpoint": 8000}

logger = logging.getLogger(__name__)


class SqliteSnapshot(IndexFacts):
    """One read transaction; see `Snapshot`."""

    def memory(self, id: str) -> Memory | None:
        return _memory(self._connection, id)

    def memories(self, *, id_prefix: str = "") -> Iterator[Memory]:
        ids = survey.newest_ids(self._connection, id_prefix)
        return (memory for id in ids if (memory := self.memory(id)) is not None)

    def statistics(self) -> Statistics:
        return survey.statistics(self._connection)


class SqliteTransaction:
    """One write transaction; see `Transaction`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._index = IndexWriter(connection)

    def memory(self, id: str) -> Memory | None:
        return _memory(self._connection, id)

    def insert(self, memory: Memory) -> None:
        validity = (memory.valid_from, memory.valid_until)
        links = (memory.supersedes, memory.superseded_by)
        self._change_one(_INSERT, (memory.id, memory.text, memory.created_at, *validity, *links))
        self._index.settle(memory.id)

    def expire(self, id: str, *, valid_until: str, superseded_by: str) -> None:
        self._index.withdraw(id)
        self._change_one(
            "UPDATE memories SET valid_until = ?, superseded_by = ? WHERE id = ? AND valid_until IS NULL",
            (valid_until, superseded_by, id),
        )
        self._index.settle(id)

    def relink(self, id: str, *, supersedes: str | None, superseded_by: str | None) -> None:
        self._change_one(
            "UPDATE memories SET supersedes = ?, superseded_by = ? WHERE id = ?", (supersedes, superseded_by, id)
        )

    def delete(self, id: str) -> None:
        self._index.withdraw(id)
        self._change_one("DELETE FROM memories WHERE id = ?", (id,))
        self._index.settle(id)
        if self._connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_stat4'").get:
            self._connection.execute("DELETE FROM sqlite_stat4")  # samples of index keys, made by ANALYZE: whole terms

    def bytes_used(self) -> int:
        pages, free, page_bytes = (
            self._connection.pragma(name) for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * page_bytes

    def note_erasure(self, handle: str) -> None:
        scrub.note(self._connection, (handle,))

    def has_erasures(self) -> bool:
        """Return whether the erasure of something is noted."""
        return scrub.has_pending(self._connection)

    def settle_others(self) -> None:
        """Index what other programs have left to be indexed, up to a bound."""
        self._index.settle_others()

    def _change_one(self, statement: str, values: Sequence[str | None]) -> None:
        """Change exactly one memory. A trigger of another program or a damaged file may prevent that silently."""
        self._connection.execute(statement, values)
        if (changed := self._connection.changes()) != 1:
            raise StoreError(f"{self._connection.filename}: {changed} memories changed instead of one; {files.FOREIGN}")


class SqliteStore:
    """Memories in `mem.db` of a private folder; see `Store`. What cannot be written is opened to be read.

    Raises:
        StoreError: The folder or the file cannot be used; says what to do.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder.absolute() / FILE_NAME
        self._writing = threading.Lock()
        self._calls = Calls()
        self._closing = threading.Event()
        self._lending = threading.Lock()
        self._readers: list[Connection] = []
        self._writer: Connection | None = None
        self._can_write = False
        self._has_erasures = False
        self._commits = SharedCommits(SqliteTransaction, self._finish_commit)
        files.make_private_folder(self._path.parent)
        files.make_private_file(self._path)
        self._identity = files.identity(self._path)
        with files.store_errors(self._path):
            try:
                with self._lent_writer():
                    pass
            except files.UNWRITABLE as error:
                if not self._is_readable():
                    raise
                logger.warning("%s: can only be read (%s)", self._path, type(error).__name__)

    @contextmanager
    def read(self) -> Generator[SqliteSnapshot]:
        try:
            with self._reading() as connection:
                yield SqliteSnapshot(connection)
        except ContradictionError as error:
            with self._writing_transaction(files.busy_deadline()) as connection:
                rebuild(connection, error)
            raise StoreError(
                f"{self._path}: the recall index was wrong and is rebuilt from the memories; repeat", is_mended=True
            ) from error

    def write(self, work: Callable[[SqliteTransaction], T]) -> T:
        deadline = files.busy_deadline()
        with self._call():
            request = self._commits.add(work)
            try:
                if not request.wait(deadline) or request.leads:
                    with files.held(self._writing, self._path, deadline):
                        while not request.is_answered:  # one transaction may not hold all that wait
                            self._commits.commit(self._lent_writer, deadline)
            except BaseException as error:
                if self._commits.withdraw(request) or not isinstance(error, Exception):
                    raise
            finally:
                self._commits.leave(request)
            request.wait()  # whoever took it up is about to answer, within its own deadline
            return request.result()

    def settle(self, *, waits: bool) -> int:
        if not self._can_write:  # then nobody's rows can be indexed here
            return 0
        with self._writing_transaction(files.busy_deadline() if waits else time.monotonic()) as connection:
            index = IndexWriter(connection)
            index.settle_others()
            self._has_erasures = scrub.has_pending(connection)
            return index.pending_count()

    def pending_erasures(self) -> Sequence[str]:
        with self._reading() as connection:
            return scrub.pending(connection)

    def has_erasures(self) -> bool:
        return self._has_erasures

    def finish_erasures(self, handles: Sequence[str], *, waits: bool) -> bool:
        deadline = files.busy_deadline() if waits else time.monotonic()
        with self._call():
            return scrub.finish(self._path, handles, deadline=deadline, writing=self._writing, stopped=self._closing)

    def about(self) -> Mapping[str, str | int]:
        return {
            "path": str(self._path),
            "layout": schema.LAYOUT,
            "sqlite": apsw.sqlite_lib_version(),
            "file_bytes": files.size(self._path),
        }

    def backup(self, target: Path) -> None:
        with self._call():
            survey.copy(self._path, target)

    def stop_waiting(self) -> None:
        self._closing.set()

    def close(self) -> None:
        self.stop_waiting()
        if not self._calls.end():
            return
        with files.store_errors(self._path):
            for reader in self._readers:
                reader.close()
            if self._writer is not None:
                self._writer.set_busy_timeout(0)
                with suppress(apsw.Error):  # it only helps later queries
                    self._writer.pragma("optimize")
                self._writer.close()

    def _is_readable(self) -> bool:
        if files.is_there(Path(f"{self._path}-journal")):  # what kept us from undoing an interrupted write tells more
            return False
        with reading(self._path) as connection:
            files.refuse_foreign(connection, schema.LAYOUT)
            return connection.pragma("user_version") == schema.LAYOUT and schema.is_current(connection)

    @contextmanager
    def _call(self) -> Generator[None]:
        """Keep `close` waiting while a call runs, and translate what SQLite raises in it."""
        with self._calls.running(self._refusal), files.store_errors(self._path):
            if files.identity(self._path) != self._identity:  # what is written now would be lost
                raise StoreError(f"{self._path} was removed or replaced while in use; restart cavemem")
            yield

    def _refusal(self) -> StoreError:
        return StoreError(f"{self._path} was closed; open the store again")

    def _finish_commit(self, transaction: SqliteTransaction) -> None:
        transaction.settle_others()
        self._has_erasures = transaction.has_erasures()

    @contextmanager
    def _writing_transaction(self, deadline: float) -> Generator[Connection]:
        with (
            self._call(),
            files.held(self._writing, self._path, deadline),
            self._lent_writer() as connection,
            files.transaction(connection, deadline),
        ):
            yield connection

    @contextmanager
    def _lent_writer(self) -> Generator[Connection]:
        """Lend the writing connection to who holds `_writing`."""
        connection, self._writer = self._writer or self._open_writer(), None
        with files.lent(connection, self._keep_writer):
            yield connection

    def _open_writer(self) -> Connection:
        """Open the writing connection: where the store could only be read, perhaps it can be written now."""
        writer = files.connect(self._path, **_ROOM_TO_WRITE)
        try:
            files.prepare(writer, layout=schema.LAYOUT, is_current=schema.is_current, migrate=schema.migrate)
        except BaseException:
            writer.close()
            raise
        self._can_write = True
        return writer

    def _keep_writer(self, connection: Connection) -> None:
        self._writer = connection

    @contextmanager
    def _reading(self) -> Generator[Connection]:
        """Lend a reading connection inside one read transaction."""
        with self._call():
            if not self._can_write:
                with reading(self._path) as connection:
                    yield connection
                return
            with self._lending:
                reader = self._readers.pop() if self._readers else None
            if reader is None:
                reader = files.connect(self._path, query_only=1)
            with files.lent(reader, self._keep_reader), files.transaction(reader, files.busy_deadline(), begin="BEGIN"):
                yield reader

    def _keep_reader(self, reader: Connection) -> None:
        with self._lending:
            is_kept = len(self._readers) < READERS_IDLE_MAX
            if is_kept:
                self._readers.append(reader)
        if not is_kept:
            reader.close()


@contextmanager
def read_only(folder: Path, wait_ms_max: int) -> Generator[SqliteSnapshot]:
    """Open a snapshot of a store without changing any; see `open_snapshot`."""
    path = folder.absolute() / FILE_NAME
    with files.store_errors(path), reading(path, wait_ms_max) as connection:
        if connection.pragma("user_version") != schema.LAYOUT:  # what else opening checks takes time in large stores
            raise StoreError(f"{path} has another layout; use it once with this cavemem, which brings it up to date")
        yield SqliteSnapshot(connection)


def _memory(connection: Connection, id: str) -> Memory | None:
    row = connection.execute(_MEMORY, (id,)).get
    if row is None:
        return None
    text, created_at, valid_from, valid_until, supersedes, superseded_by = one(row)
    return Memory(
        id=id,
        text=decoded(text),
        created_at=decoded(created_at),
        valid_from=decoded(valid_from or created_at),
        valid_until=None if valid_until is None else decoded(valid_until),
        supersedes=decoded(supersedes) or None,
        superseded_by=decoded(superseded_by) or None,
    )
