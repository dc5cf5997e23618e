"""The store's files: the private folder, private database files, connections with our pragmas, and SQLite's errors.

Owns what both databases share, and no table. SQLite's exceptions are translated here alone.
"""

import errno
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, cast

import apsw

from cavemem_mcp.errors import StoreError

T = TypeVar("T")
Value = None | int | float | str | bytes

BUSY_MS_MAX: Final = 5000
"""How long one operation waits for other programs' locks before it gives up."""
RETRY_MS_MIN: Final = 0.1
RETRY_MS_MAX: Final = 3.0
"""Longest sleep between two attempts to get a lock, at first and when time runs out."""
RETRY_MS_MAX_LATER: Final = 25.0
"""Longest sleep of those who have waited for a while."""

_BUSY: Final = "another program holds the store; let it finish or end it, then repeat"
_DAMAGED: Final = "the file is damaged; nothing was replaced: move it away or restore a backup"
FOREIGN: Final = "its tables are not as expected here: another program changed them; move it away or restore a backup"
_FORBIDDEN: Final = "the file may not be used; check its permissions and its disk's"
_INTERRUPTED: Final = "the operation was interrupted; repeat it"

# fullfsync: on macOS, fsync alone does not reach the disk.
_PRAGMAS: Final = {"secure_delete": 1, "temp_store": "memory", "synchronous": "full", "fullfsync": 1}

ADVICE: Final[dict[type[apsw.Error], str]] = {
    apsw.BusyError: _BUSY,
    apsw.LockedError: _BUSY,
    apsw.ProtocolError: _BUSY,
    apsw.FullError: "the disk is full; free some space, then repeat",
    apsw.ReadOnlyError: "the file cannot be written; check its permissions, and whether its disk is mounted read-only",
    apsw.PermissionsError: _FORBIDDEN,
    apsw.AuthError: _FORBIDDEN,
    apsw.CorruptError: _DAMAGED,
    apsw.FormatError: _DAMAGED,
    apsw.EmptyError: _DAMAGED,
    apsw.NotADBError: "the file is not a database; nothing was replaced: move it away or restore a backup",
    apsw.IOError: "the disk failed to read or write; check its free space, your quota and the disk, then repeat",
    apsw.CantOpenError: (
        "the file cannot be opened; check the folder's permissions, that the disk is local, "
        "and how many files may be open"
    ),
    apsw.NoLFSError: "the disk cannot hold a file this large; move the store to another disk",
    apsw.NoMemError: "there is not enough memory; close other programs, then repeat",
    apsw.TooBigError: "a row is larger than SQLite can hold; shorten what another program wrote",
    apsw.InterruptError: _INTERRUPTED,
    apsw.AbortError: _INTERRUPTED,
    apsw.SQLError: FOREIGN,
    apsw.SchemaChangeError: FOREIGN,
    apsw.ConstraintError: FOREIGN,
    apsw.MismatchError: FOREIGN,
}
"""What to do about each failure of SQLite that its files or other programs can cause."""
UNWRITABLE: Final = (apsw.ReadOnlyError, apsw.CantOpenError, apsw.FullError, apsw.IOError)
"""Failures of those who would write, under which those who only read may still succeed."""
_HARMLESS: Final = (apsw.BusyError, apsw.LockedError, apsw.InterruptError, apsw.ConstraintError, apsw.FullError)
"""Failures after which a connection is as good as before."""
DEFECT_ADVICE: Final = "SQLite was misused, which is a defect of cavemem; please report it with the log"

logger = logging.getLogger(__name__)


class Rows(Protocol):
    """The part of `apsw.Cursor` used here."""

    def __iter__(self) -> Iterator[Any]:
        """Yield each row as a tuple."""
        ...

    @property
    def get(self) -> Any:
        """The rest of the rows with the least structure: None, one value, one tuple, or a list."""
        ...


class Connection(Protocol):
    """The part of `apsw.Connection` used here, with types (apsw's own need Python 3.12)."""

    @property
    def filename(self) -> str: ...
    @property
    def in_transaction(self) -> bool: ...
    def readonly(self, name: str, /) -> bool: ...
    def execute(self, statements: str, bindings: Sequence[Value] | None = None, /) -> Rows: ...
    def executemany(self, statements: str, sequenceofbindings: Iterable[Sequence[Value]], /) -> Rows: ...
    def pragma(self, name: str, value: int | str | None = None, /) -> Any: ...
    def changes(self) -> int: ...
    def config(self, op: int, /, *args: int) -> int: ...
    def set_busy_timeout(self, milliseconds: int, /) -> None: ...
    def wal_checkpoint(self, dbname: str | None = None, mode: int = 0) -> tuple[int, int]: ...
    def close(self) -> None: ...


@contextmanager
def store_errors(path: Path) -> Generator[None]:
    """Turn SQLite's errors about a file into `StoreError` with advice; neither names any data."""
    try:
        yield
    except apsw.Error as error:
        advice = next((ADVICE[kind] for kind in type(error).__mro__ if kind in ADVICE), None)
        if advice is None:
            logger.exception("SQLite was misused")
        name, code = type(error).__name__, getattr(error, "extendedresult", 0)
        raise StoreError(f"{path}: {advice or DEFECT_ADVICE} ({name} {code})") from error
    except UnicodeDecodeError as error:  # of a name or an id; texts are read as bytes
        raise StoreError(f"{path}: {_DAMAGED}") from error


@contextmanager
def system_errors(path: Path) -> Generator[None]:
    """Turn the operating system's errors about a file into `StoreError`."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        raise StoreError(f"{path}: {reason}; check the path, its permissions and its disk") from error


def make_private_folder(folder: Path) -> None:
    """Create the folder (0700, parents too) where it is absent; refuse a symlink and what another user owns."""
    with system_errors(folder):
        for missing in [path for path in (*reversed(folder.parents), folder) if not path.exists()]:
            with suppress(FileExistsError):  # another process was faster; or a dangling symlink, refused below
                missing.mkdir(mode=0o700)
                missing.chmod(0o700)  # whatever the umask
                _sync(missing.parent)
        _check_private(folder, folder.lstat(), is_kind=stat.S_ISDIR, kind="folder")


def make_private_file(path: Path) -> None:
    """Create an empty database (0600) where there is no file; refuse what is not a regular file of ours.

    Nobody ever sees the file without its content, so one that has none was cut, and is refused as well: SQLite would
    make a new database of it.
    """
    logs = (log_of(path), Path(f"{path}-journal"))
    with system_errors(path):
        for beside in (*logs, Path(f"{path}-shm")):
            with suppress(FileNotFoundError):
                _check_private(beside, beside.lstat(), is_kind=stat.S_ISREG, kind="file")
        if not os.path.lexists(path):
            for log in logs:
                if log.exists() and log.stat().st_size:
                    raise StoreError(f"{path} is missing, but not its {log.name}; restore a backup, or move that away")
            _create(path)
        _check_private(path, path.lstat(), is_kind=stat.S_ISREG, kind="file")
        refuse_empty(path)


def refuse_empty(path: Path) -> None:
    """Refuse a file of no bytes.

    Raises:
        StoreError: It has none.
    """
    if path.stat().st_size == 0:
        raise StoreError(f"{path} is empty, as no database is; nothing was replaced: move it away or restore a backup")


def _create(path: Path) -> None:
    """Put an empty database in the place of no file, at once: it is made elsewhere first."""
    with store_errors(path), closing(apsw.Connection(":memory:")) as connection:
        empty = cast("bytes | None", connection.serialize("main"))
        if empty is None:  # how SQLite says so here
            raise apsw.exception_for(apsw.SQLITE_NOMEM)
    new = path.with_name(f"{path.name}-new-{os.urandom(8).hex()}")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, 0o600)  # whatever the umask
            stream.write(empty)
            stream.flush()
            os.fsync(descriptor)
        with suppress(FileExistsError):  # another process was faster
            path.hardlink_to(new)
    finally:
        new.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Make the names in a folder durable; SQLite does so only for the folder of its own files."""
    with suppress(OSError):  # a folder to write to need not be one to read, and not every disk can do that
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _check_private(path: Path, status: os.stat_result, *, is_kind: Callable[[int], bool], kind: str) -> None:
    """Refuse what is not a real file or folder of ours; take other users' access to it away."""
    if stat.S_ISLNK(status.st_mode):
        raise StoreError(f"{path} is a symbolic link, which is refused; put the {kind} itself there")
    if not is_kind(status.st_mode):
        raise StoreError(f"{path} is not a {kind}; move it away")
    if status.st_uid != os.geteuid():
        raise StoreError(f"{path} belongs to another user, which is refused; move it away or take it over")
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        try:
            path.chmod(mode & 0o700)  # what the owner took from themselves stays taken
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            logger.warning("%s: other users may use it, and its disk is read-only", path)


def log_of(path: Path) -> Path:
    """Return where a database has its write-ahead log."""
    return Path(f"{path}-wal")


def log_bytes(path: Path) -> int:
    """Return the size of a database's write-ahead log; 0 where there is none."""
    log = log_of(path)
    with system_errors(log):
        try:
            return log.stat().st_size
        except FileNotFoundError:  # also while another process closes the database
            return 0


def identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another that takes its place; None while there is none."""
    with system_errors(path):
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
    return status.st_dev, status.st_ino


def is_there(path: Path) -> bool:
    """Return whether a path names something, be it a dangling symlink."""
    with system_errors(path):
        try:
            path.lstat()
        except FileNotFoundError:
            return False
    return True


def connect(path: Path, **pragmas: int) -> Connection:
    """Open a database file that exists, with the pragmas that change nothing in it and those that the caller adds."""
    connection = cast("Connection", apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE))
    if connection.readonly("main") and not pragmas.get("query_only"):  # SQLite does with less than it was asked for
        connection.close()
        raise apsw.exception_for(apsw.SQLITE_READONLY)
    try:
        connection.set_busy_timeout(BUSY_MS_MAX)
        for name, value in (*_PRAGMAS.items(), *pragmas.items()):
            connection.pragma(name, value)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def lent(connection: Connection, give_back: Callable[[Connection], None]) -> Generator[Connection]:
    """Lend a connection for one use, then give it back; close it instead when SQLite failed while it was used.

    A connection remembers pages, and one that the disk misread would fail, or mislead, everything later. One that could
    not roll back would go on holding the write lock.
    """
    is_sound = True
    try:
        yield connection
    except apsw.Error as error:
        is_sound = isinstance(error, _HARMLESS)
        raise
    finally:
        if is_sound and not connection.in_transaction:
            give_back(connection)
        else:
            with suppress(apsw.Error):  # what failed tells more
                connection.close()


def size(path: Path) -> int:
    """Return the bytes that a database takes on disk, its log included; 0 where there is none."""
    with system_errors(path):
        try:
            return path.stat().st_size + log_bytes(path)
        except FileNotFoundError:
            return 0


def prepare(
    connection: Connection,
    *,
    layout: int,
    is_current: Callable[[Connection], bool],
    migrate: Callable[[Connection], None],
) -> None:
    """Bring a database to `layout`, the `user_version` that this program knows. Takes no write lock where it is there.

    Raises:
        StoreError: The file has a newer layout or cannot be used with a write-ahead log; nothing in it was touched.
    """
    deadline = busy_deadline()
    until_free(connection, lambda: refuse_foreign(connection, layout), deadline)
    mode = until_free(connection, lambda: connection.pragma("journal_mode", "wal"), deadline)
    if mode != "wal":
        raise StoreError(f"{connection.filename}: its disk allows no write-ahead log; move the store to a local disk")
    with transaction(connection, deadline, begin="BEGIN"):
        is_done = connection.pragma("user_version") == layout and is_current(connection)
    if is_done:
        return
    with transaction(connection, deadline):
        refuse_foreign(connection, layout)
        migrate(connection)
        connection.pragma("user_version", layout)


def refuse_foreign(connection: Connection, layout: int) -> None:
    """Refuse a database that this program does not understand or that is not whole, and let it be as it is.

    Raises:
        StoreError: It has a newer layout than `layout`, keeps its text in another encoding, or was cut.
    """
    version = connection.pragma("user_version")
    if version > layout:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        raise StoreError(
            f"{connection.filename} has layout {version}, newer than the {layout} that this cavemem knows; "
            "it was left as it is: upgrade cavemem"
        )
    encoding = connection.pragma("encoding")
    if encoding != "UTF-8":
        raise StoreError(f"{connection.filename} keeps its text as {encoding}; dump it and load it as UTF-8")
    if is_cut(connection):
        raise StoreError(f"{connection.filename}: {_DAMAGED}")


def is_cut(connection: Connection) -> bool:
    """Return whether a file ends inside a page, which SQLite would take for zeros; it knows when whole pages miss."""
    path = Path(connection.filename)
    has_log = log_bytes(path) > 0  # asked first: while there is none, nobody writes to the file
    with system_errors(path):
        return path.stat().st_size % connection.pragma("page_size") > 0 and not has_log


def missing(connection: Connection, objects: Iterable[str]) -> list[str]:
    """Return the names of tables, indexes and triggers that are not there."""
    existing = _statements(connection)
    return [name for name in objects if name.encode() not in existing]


def altered(connection: Connection, objects: Mapping[str, str]) -> list[str]:
    """Return the names of tables, indexes and triggers that are not there as these statements make them."""
    existing = _statements(connection)
    return [name for name, statement in objects.items() if existing.get(name.encode()) != statement.encode()]


def _statements(connection: Connection) -> dict[bytes, bytes]:
    """Return by name what made each table, index and trigger; as bytes, for damaged ones may be no valid UTF-8."""
    return dict(connection.execute("SELECT CAST(name AS BLOB), CAST(sql AS BLOB) FROM sqlite_schema"))


def busy_deadline() -> float:
    """Return when, on the monotonic clock, an operation that begins now stops waiting for locks."""
    return time.monotonic() + BUSY_MS_MAX / 1000


def retry_seconds(since: float, deadline: float) -> float:
    """Return how long to sleep before another program's lock is tried again: short and random, so that all get it.

    When very many wait, their attempts take the processors from whoever holds the lock: they become rarer after a
    while, and frequent again for those whose time runs out, so that these come first.
    """
    now = time.monotonic()
    patience_ms = max(RETRY_MS_MAX, min((now - since) * 100, (deadline - now) * 20, RETRY_MS_MAX_LATER))
    return (RETRY_MS_MIN + (patience_ms - RETRY_MS_MIN) * os.urandom(1)[0] / 255) / 1000


def until_free(connection: Connection, action: Callable[[], T], deadline: float) -> T:
    """Run `action`, again after short random sleeps while another program holds the lock, until the deadline.

    SQLite's own waiting sleeps up to 100 ms a step, which leaves single writers behind for seconds.
    """
    since = time.monotonic()
    connection.set_busy_timeout(0)
    try:
        while True:
            try:
                return action()
            except apsw.BusyError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(retry_seconds(since, deadline))
    finally:
        connection.set_busy_timeout(BUSY_MS_MAX)


@contextmanager
def held(lock: threading.Lock, path: Path, deadline: float) -> Generator[None]:
    """Hold a lock of this process, for which other threads count as other programs do."""
    if not lock.acquire(timeout=max(deadline - time.monotonic(), 0)):
        raise StoreError(f"{path}: {_BUSY}")
    try:
        yield
    finally:
        lock.release()


@contextmanager
def transaction(connection: Connection, deadline: float, *, begin: str = "BEGIN IMMEDIATE") -> Generator[None]:
    """Run the block in one transaction: durable when it ends, undone whole when it raises."""
    until_free(connection, lambda: connection.execute(begin), deadline)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # an error may have ended the transaction already
            with suppress(apsw.Error):  # the first error tells more; closing the connection ends the transaction then
                connection.execute("ROLLBACK")
        raise


def truncate_log(connection: Connection, deadline: float) -> bool:
    """Move the whole write-ahead log into the database and empty it; False when readers did not let go in time."""
    try:
        until_free(connection, lambda: connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE), deadline)
    except apsw.BusyError:
        return False
    return True
