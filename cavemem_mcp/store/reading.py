"""Read a database that cannot be written, or that must not be: on a read-only disk, on a full one, for a diagnosis.

SQLite shares a write-ahead log through a file `-shm` beside it, which even readers make and write. Where that is there
but cannot be written, SQLite reads all the same. Where it is missing, no program has the database open at this moment,
and it is read without locks; what could make that wrong is noticed afterwards.
"""

import stat
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple, cast

import apsw

from cavemem_mcp.errors import StoreError
from cavemem_mcp.store import files
from cavemem_mcp.store.files import Connection

_LOG_HEADER_BYTES: Final = 32
"""What the write-ahead log begins with; SQLite changes it whenever it uses the log from its beginning again."""


class ChangedError(Exception):
    """Another program wrote while a database was read without locks; reading it again may succeed."""


@contextmanager
def reading(path: Path, wait_ms_max: int = files.BUSY_MS_MAX) -> Generator[Connection]:
    """Lend a connection in one read transaction, as an ordinary reader where that works and by `observing` otherwise.

    Raises:
        StoreError: The file is none that can be read.
    """
    _refuse_irregular(path)
    try:
        connection = _begun(path, "mode=ro", wait_ms_max)
    except files.UNWRITABLE:
        connection = None
    if connection is None:
        try:
            with observing(path, wait_ms_max) as connection:
                yield connection
        except ChangedError as error:
            raise StoreError(f"{path}: {error}; repeat") from error
    else:
        with closing(connection):
            yield connection


@contextmanager
def observing(path: Path, wait_ms_max: int = files.BUSY_MS_MAX) -> Generator[Connection]:
    """Lend a connection in one read transaction that leaves every byte in the folder as it is, and makes no file.

    Not for processes that have the database open in another way too: closing it here may drop their locks.

    Raises:
        StoreError: The file is none that can be read.
        ChangedError: Another program wrote meanwhile; what was read may be wrong.
    """
    _refuse_irregular(path)
    connection = _sharing(path, wait_ms_max)
    if connection is not None:
        with closing(connection):
            yield connection
        return
    before = _State.of(path)
    if before.journal_bytes:
        raise StoreError(f"{path}: a write of another program is not finished, or was interrupted; let it be finished")
    try:
        with closing(_alone(path, has_log=before.log_header != b"")) as connection:
            yield connection
    except apsw.Error as error:
        before.check(path, error)
        raise
    before.check(path, None)


class _State(NamedTuple):
    """What must stay the same while a database is read without locks: only checkpoints and new logs change it."""

    modified_ns: int
    size: int
    journal_bytes: int
    log_header: bytes

    @classmethod
    def of(cls, path: Path) -> "_State":
        with files.system_errors(path):
            status = path.stat()
            journal = Path(f"{path}-journal")
            log = files.log_of(path)
            log_header = b""
            if log.is_file():
                with log.open("rb") as stream:
                    log_header = stream.read(_LOG_HEADER_BYTES)
            return cls(
                status.st_mtime_ns, status.st_size, journal.stat().st_size if journal.is_file() else 0, log_header
            )

    def check(self, path: Path, error: Exception | None) -> None:
        """Raise when the state is no longer this one."""
        if _State.of(path) != self:
            raise ChangedError("another program changed the file while it was read") from error


def _refuse_irregular(path: Path) -> None:
    with files.system_errors(path):
        if not stat.S_ISREG(path.lstat().st_mode):
            raise StoreError(f"{path} is not a regular file; move it away")
        files.refuse_empty(path)


def _sharing(path: Path, wait_ms_max: int) -> Connection | None:
    """Open a database whose log is shared, or was by a program that was killed; None where that cannot be joined."""
    if not (Path(f"{path}-shm").is_file() and files.log_of(path).is_file()):  # SQLite would make what is missing
        return None
    try:
        return _begun(path, "mode=ro&readonly_shm=1", wait_ms_max)
    except files.UNWRITABLE:
        return None


def _begun(path: Path, options: str, wait_ms_max: int) -> Connection:
    """Open a database and begin a read transaction."""
    connection = _opened(path, options)
    try:
        connection.set_busy_timeout(wait_ms_max)
        _begin(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _alone(path: Path, *, has_log: bool) -> Connection:
    """Open a database that no other program has open; without a log, SQLite need not even look for one."""
    if not has_log:
        return _begun(path, "mode=ro&immutable=1", 0)
    connection = _opened(path, "mode=ro", vfs="unix-none")
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.pragma("locking_mode", "exclusive")  # what would be shared is in this process's memory
        _begin(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _opened(path: Path, options: str, vfs: str | None = None) -> Connection:
    name = str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    return cast("Connection", apsw.Connection(f"file:{name}?{options}", flags=flags, vfs=vfs))


def _begin(connection: Connection) -> None:
    connection.execute("BEGIN")
    connection.pragma("schema_version")  # the transaction begins with what it reads first
