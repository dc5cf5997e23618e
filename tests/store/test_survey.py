"""All memories of a snapshot, their counts, copies of the file, and snapshots that change nothing."""

from contextlib import closing
from pathlib import Path

import apsw
import pytest

from cavemem_mcp.errors import StoreError
from cavemem_mcp.model import Largest, Memory, Statistics, memory_id
from cavemem_mcp.store import open_snapshot
from cavemem_mcp.store.sqlite import SqliteStore


def _memory(text: str, day: int, **links: str) -> Memory:
    time = f"2026-01-{day:02}T00:00:00.000000000Z"
    return Memory(id=memory_id(text), text=text, created_at=time, valid_from=time, **links)


def _insert(store: SqliteStore, *memories: Memory) -> None:
    store.write(lambda transaction: [transaction.insert(memory) for memory in memories])


OLD = _memory("old", 1, valid_until="2026-01-03T00:00:00Z", superseded_by=memory_id("newer"))
MIDDLE = _memory("in the midst é", 2)
NEWER = _memory("newer", 3, supersedes=OLD.id)
SAME_DAY = sorted([_memory("a", 4), _memory("b", 4)], key=lambda memory: memory.id)


def test_memories_come_newest_first_then_by_id(store: SqliteStore) -> None:
    _insert(store, MIDDLE, *SAME_DAY, OLD, NEWER)
    with store.read() as snapshot:
        assert list(snapshot.memories()) == [*SAME_DAY, NEWER, MIDDLE, OLD]


def test_memories_are_found_by_the_beginning_of_their_ids(store: SqliteStore) -> None:
    _insert(store, MIDDLE, *SAME_DAY, OLD, NEWER)
    with store.read() as snapshot:
        assert list(snapshot.memories(id_prefix="mem_")) == [*SAME_DAY, NEWER, MIDDLE, OLD]
        assert list(snapshot.memories(id_prefix=OLD.id[:9])) == [OLD]
        assert list(snapshot.memories(id_prefix=OLD.id)) == [OLD]
        for other in ("%", "mem_%", "MEM_", OLD.id + "0", "\U0010ffff"):
            assert list(snapshot.memories(id_prefix=other)) == []


def test_memories_are_those_of_one_moment(store: SqliteStore) -> None:
    _insert(store, OLD, NEWER)
    with store.read() as snapshot:
        memories = snapshot.memories()
        assert next(memories) == NEWER
        _insert(store, MIDDLE)
        assert list(memories) == [OLD]


def test_everything_is_counted(store: SqliteStore) -> None:
    with store.read() as snapshot:
        assert snapshot.statistics() == Statistics(
            current=0, expired=0, chains=0, text_bytes=0, oldest=None, newest=None, largest=None
        )
    _insert(store, MIDDLE, OLD, NEWER)
    with store.read() as snapshot:
        assert snapshot.statistics() == Statistics(
            current=2,
            expired=1,
            chains=2,
            text_bytes=15 + 3 + 5,
            oldest=OLD.created_at,
            newest=NEWER.created_at,
            largest=Largest(id=MIDDLE.id, bytes=15),
        )


def test_rows_that_are_no_memories_are_neither_listed_nor_counted(store: SqliteStore, folder: Path) -> None:
    _insert(store, NEWER)
    with closing(apsw.Connection(str(folder / "mem.db"))) as other:
        other.execute("INSERT INTO memories(id, text, created_at, valid_from) VALUES (x'00ff', 't', '1', '1')")
        other.execute("INSERT INTO memories(id, text, created_at, valid_from) VALUES (NULL, 't', '1', '1')")
    with store.read() as snapshot:
        assert list(snapshot.memories()) == [NEWER]
        assert (snapshot.statistics().current, snapshot.statistics().text_bytes) == (1, 5)


def test_what_other_programs_wrote_is_listed(store: SqliteStore, folder: Path) -> None:
    with closing(apsw.Connection(str(folder / "mem.db"))) as other:
        other.execute("INSERT INTO memories VALUES ('mem_1', 'by another', '2026-01-01T00:00:00Z', '', NULL, '', '')")
    with store.read() as snapshot:
        (memory,) = snapshot.memories()
        assert (memory.text, memory.valid_from, memory.supersedes) == ("by another", "2026-01-01T00:00:00Z", None)
        assert snapshot.statistics().chains == 1


def test_a_backup_is_the_whole_store_in_one_private_file(store: SqliteStore, tmp_path: Path) -> None:
    _insert(store, OLD, NEWER)
    target = tmp_path / "copies" / "mem.db"
    target.parent.mkdir(mode=0o700)
    store.backup(target)
    assert [path.name for path in target.parent.iterdir()] == ["mem.db"]
    assert target.stat().st_mode & 0o777 == 0o600
    with closing(SqliteStore(target.parent)) as copied, copied.read() as snapshot:
        assert list(snapshot.memories()) == [NEWER, OLD]


def test_a_backup_that_cannot_be_made_says_why(store: SqliteStore, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file or directory"):
        store.backup(tmp_path / "missing" / "mem.db")
    store.close()
    with pytest.raises(StoreError, match="was closed"):
        store.backup(tmp_path / "mem.db")


def test_the_store_tells_where_and_what_it_is(store: SqliteStore, folder: Path) -> None:
    about = store.about()
    assert about["path"] == str(folder / "mem.db")
    assert about["sqlite"] == apsw.sqlite_lib_version()
    assert about["file_bytes"] == sum((folder / name).stat().st_size for name in ("mem.db", "mem.db-wal"))


def test_a_snapshot_alone_ranks_and_lists_without_changing_a_byte(store: SqliteStore, folder: Path) -> None:
    _insert(store, OLD, NEWER)
    store.close()
    before = (folder / "mem.db").read_bytes()
    with open_snapshot(folder, wait_ms_max=0) as snapshot:
        assert list(snapshot.memories()) == [NEWER, OLD]
        assert snapshot.document_frequencies(["newer", "old"]) == {"newer": 1}
        assert snapshot.memory(OLD.id) == OLD
    assert (folder / "mem.db").read_bytes() == before


def test_a_snapshot_of_what_is_no_store_is_refused_and_makes_nothing(tmp_path: Path) -> None:
    for folder in (tmp_path / "missing", tmp_path):
        with pytest.raises(StoreError, match="No such file"), open_snapshot(folder, wait_ms_max=0):
            pass
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mem.db").symlink_to("/etc/hostname")
    with pytest.raises(StoreError, match="is not a regular file"), open_snapshot(tmp_path, wait_ms_max=0):
        pass


@pytest.mark.parametrize("version", [0, 99])
def test_a_snapshot_of_another_layout_is_refused(store: SqliteStore, folder: Path, version: int) -> None:
    with closing(apsw.Connection(str(folder / "mem.db"))) as other:
        other.pragma("user_version", version)
    with pytest.raises(StoreError, match="has another layout"), open_snapshot(folder, wait_ms_max=0):
        pass
