"""Files are private, foreign ones are refused, and whatever SQLite cannot do is told with advice."""

import inspect
import os
import stat
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from cavemem_mcp.errors import StoreError
from cavemem_mcp.model import Memory, memory_id
from cavemem_mcp.store import files
from cavemem_mcp.store.sqlite import SqliteStore
from tests.store.connections import writer_of
from tests.store.foreign import ForeignProgram

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def remember(store: SqliteStore, text: str) -> None:
    store.write(
        lambda transaction: transaction.insert(Memory(id=memory_id(text), text=text, created_at="t", valid_from="t"))
    )


def is_stored(store: SqliteStore, text: str) -> bool:
    with store.read() as snapshot:
        return snapshot.memory(memory_id(text)) is not None


@pytest.fixture(params=[0, 0o277])
def _odd_umask(request: pytest.FixtureRequest) -> Generator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_odd_umask")
def test_new_folders_and_files_are_private_whatever_the_umask(folder: Path) -> None:
    with closing(SqliteStore(folder)) as store:
        remember(store, "ant")
        assert {path.name for path in folder.iterdir()} == {"mem.db", "mem.db-wal", "mem.db-shm"}
        assert {mode(path) for path in folder.iterdir()} == {0o600}

    assert mode(folder) == mode(folder.parent) == 0o700


def test_new_folders_survive_a_power_loss(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    sync = os.fsync

    def noting(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)

    SqliteStore(folder).close()

    assert synced == [path.stat().st_ino for path in (folder.parent.parent, folder.parent, folder / "mem.db")]


def test_looser_permissions_of_our_own_files_are_tightened(folder: Path) -> None:
    SqliteStore(folder).close()
    folder.chmod(0o755)
    (folder / "mem.db").chmod(0o644)

    SqliteStore(folder).close()

    assert (mode(folder), mode(folder / "mem.db")) == (0o700, 0o600)


def make_symlink(path: Path) -> None:
    target = path.with_name("elsewhere")
    target.touch()
    path.symlink_to(target)


def make_dangling_symlink(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("name", ["mem.db", "mem.db-wal"])
@pytest.mark.parametrize("make", [make_symlink, make_dangling_symlink, make_pipe, make_folder])
def test_a_file_that_is_not_a_regular_one_is_refused(folder: Path, name: str, make: Callable[[Path], None]) -> None:
    folder.mkdir(parents=True)
    make(folder / name)

    with pytest.raises(StoreError, match=r"symbolic link|not a file"):
        SqliteStore(folder)

    assert not folder.with_name("nowhere").exists()


@pytest.mark.parametrize("make", [make_symlink, make_dangling_symlink, make_pipe])
def test_a_folder_that_is_not_a_real_one_is_refused(folder: Path, make: Callable[[Path], None]) -> None:
    folder.parent.mkdir()
    make(folder)

    with pytest.raises(StoreError, match=r"symbolic link|not a folder"):
        SqliteStore(folder)


def test_a_file_in_the_place_of_a_parent_folder_is_told(folder: Path) -> None:
    folder.parent.touch()

    with pytest.raises(StoreError, match="Not a directory; check the path"):
        SqliteStore(folder)


def test_connections_are_durable_and_overwrite_what_they_delete(store: SqliteStore) -> None:
    pragmas = {"journal_mode": "wal", "synchronous": 2, "fullfsync": 1, "secure_delete": 1, "temp_store": 2}
    pragmas["busy_timeout"] = 5000

    assert {name: writer_of(store).pragma(name) for name in pragmas} == pragmas
    with store.read() as snapshot:
        assert {name: snapshot._connection.pragma(name) for name in pragmas} == pragmas


@needs_root
@pytest.mark.parametrize("name", [".", "mem.db"])
def test_what_belongs_to_another_user_is_refused(folder: Path, name: str) -> None:
    SqliteStore(folder).close()
    os.chown(folder / name, 12345, 12345)

    with pytest.raises(StoreError, match="belongs to another user"):
        SqliteStore(folder)


def test_a_file_that_is_no_database_is_refused_and_kept(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "mem.db").write_bytes(b"precious notes, not a database\n" * 100)

    with pytest.raises(StoreError, match="not a database; nothing was replaced"):
        SqliteStore(folder)

    assert (folder / "mem.db").read_bytes() == b"precious notes, not a database\n" * 100


def test_a_damaged_database_is_told_and_kept(folder: Path) -> None:
    with closing(SqliteStore(folder)) as store:
        for number in range(200):
            remember(store, f"ant {number} " * 20)
    data = bytearray((folder / "mem.db").read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    (folder / "mem.db").write_bytes(data)

    with pytest.raises(StoreError, match="damaged; nothing was replaced"), closing(SqliteStore(folder)) as store:
        is_stored(store, "ant")

    assert (folder / "mem.db").read_bytes() == data


def test_a_new_file_is_a_database_from_the_first_moment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(parents=True)
    seen: list[int] = []

    def see(path: Path, target: Path) -> None:
        assert not path.exists()
        os.link(target, path)
        seen.append(path.stat().st_size)

    monkeypatch.setattr(Path, "hardlink_to", see)
    files.make_private_file(folder / "mem.db")

    assert seen == [4096]
    assert [path.name for path in folder.iterdir()] == ["mem.db"]


def test_a_file_that_another_process_makes_first_is_left_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(parents=True)
    make = Path.hardlink_to

    def be_late(path: Path, target: Path) -> None:
        path.touch(0o600)
        path.write_text("theirs")
        make(path, target)

    monkeypatch.setattr(Path, "hardlink_to", be_late)
    files.make_private_file(folder / "mem.db")

    assert (folder / "mem.db").read_text() == "theirs"
    assert [path.name for path in folder.iterdir()] == ["mem.db"]


def test_a_full_disk_changes_nothing_and_is_told(store: SqliteStore) -> None:
    pages = writer_of(store).pragma("page_count")
    writer_of(store).pragma("max_page_count", pages)

    with pytest.raises(StoreError, match="disk is full"):
        remember(store, "ant " * 50_000)

    writer_of(store).pragma("max_page_count", 1_000_000)
    assert not is_stored(store, "ant " * 50_000)
    remember(store, "ant " * 50_000)
    assert is_stored(store, "ant " * 50_000)


def test_a_file_that_cannot_be_written_is_told(store: SqliteStore) -> None:
    writer_of(store).pragma("query_only", 1)

    with pytest.raises(StoreError, match="cannot be written"):
        remember(store, "ant")


@pytest.mark.parametrize("name", ["mem.db", "mem.db-wal"])
def test_a_file_that_the_system_cannot_look_at_is_told(store: SqliteStore, folder: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / name).symlink_to(folder / name)

    with pytest.raises(StoreError, match=f"{name}: Too many levels of symbolic links; check the path"):
        store.about() if name == "mem.db-wal" else is_stored(store, "ant")


def test_tables_changed_by_another_program_are_told(store: SqliteStore, folder: Path) -> None:
    with ForeignProgram(folder / "mem.db") as another:
        another.run("DROP TABLE memories")

    with pytest.raises(StoreError, match="another program changed them"):
        is_stored(store, "ant")


def test_messages_name_the_file_and_never_the_text(store: SqliteStore, folder: Path) -> None:
    remember(store, "secret")

    with pytest.raises(StoreError) as raised:
        remember(store, "secret")

    assert str(folder / "mem.db") in raised.value.message
    assert "secret" not in raised.value.message


def test_a_lock_held_by_another_program_is_told_when_the_budget_is_spent(
    store: SqliteStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert files.BUSY_MS_MAX == writer_of(store).pragma("busy_timeout") == 5000
    monkeypatch.setattr(files, "BUSY_MS_MAX", 100)
    with ForeignProgram(folder / "mem.db") as another:
        another.run("BEGIN IMMEDIATE")

        with pytest.raises(StoreError, match="another program holds the store"):
            remember(store, "ant")

        another.run("COMMIT")
        remember(store, "ant")
    assert is_stored(store, "ant")


@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
def test_a_migration_gives_up_when_the_budget_is_spent(
    folder: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.setattr(files, "BUSY_MS_MAX", 100)
    folder.mkdir(parents=True)
    with ForeignProgram(folder / "mem.db") as another:
        another.run("CREATE TABLE memories(id TEXT PRIMARY KEY, text TEXT, created_at TEXT)")
        another.run(statement)

        with pytest.raises(StoreError, match="another program holds the store"):
            SqliteStore(folder)

        another.run("COMMIT")
    SqliteStore(folder).close()


MISUSES = {
    "BindingsError",
    "ConnectionClosedError",
    "ConnectionNotClosedError",
    "CursorClosedError",
    "Error",
    "ExecTraceAbort",
    "ExecutionCompleteError",
    "ExtensionLoadingError",
    "ForkingViolationError",
    "IncompleteExecutionError",
    "InternalError",
    "InvalidContextError",
    "MisuseError",
    "NoFTS5Error",
    "NotFoundError",
    "RangeError",
    "ThreadingViolationError",
    "VFSFileClosedError",
    "VFSNotImplementedError",
}
"""What only a defect of ours can cause."""


@pytest.mark.parametrize(
    "kind",
    [kind for _, kind in inspect.getmembers(apsw, inspect.isclass) if issubclass(kind, apsw.Error)],
    ids=lambda kind: kind.__name__,
)
def test_every_exception_of_the_driver_becomes_a_store_error_with_advice(
    kind: type[apsw.Error], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(StoreError) as raised, files.store_errors(Path("/somewhere/mem.db")):
        raise kind("memory text")

    assert raised.value.message.startswith("/somewhere/mem.db: ")
    assert "memory text" not in raised.value.message
    assert (kind not in files.ADVICE) == (kind.__name__ in MISUSES)
    assert (files.DEFECT_ADVICE in raised.value.message) == bool(caplog.records) == (kind.__name__ in MISUSES)


def test_a_store_that_is_removed_or_replaced_while_open_is_used_no_more(store: SqliteStore, folder: Path) -> None:
    (folder / "mem.db").rename(folder / "moved.db")
    with pytest.raises(StoreError, match="removed or replaced"):
        store.write(lambda transaction: None)
    (folder / "mem.db").touch()
    with pytest.raises(StoreError, match="removed or replaced"), store.read():
        pass


@pytest.mark.parametrize("look", [files.size, files.log_bytes, files.identity])
def test_a_file_that_cannot_be_looked_at_is_told(tmp_path: Path, look: Callable[[Path], object]) -> None:
    (tmp_path / "file").touch()
    assert not look(tmp_path / "absent" / "mem.db")
    with pytest.raises(StoreError, match=r"mem\.db.*check the path"):
        look(tmp_path / "file" / "mem.db")
