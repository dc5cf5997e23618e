"""Older stores open in place and lose nothing; newer ones are refused and stay as they are."""

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from cavemem_mcp.errors import StoreError
from cavemem_mcp.model import Memory
from cavemem_mcp.recovery import RecoveryStore
from cavemem_mcp.service import Cavemem
from cavemem_mcp.store import schema
from cavemem_mcp.store.sqlite import SqliteStore
from tests.store.foreign import ForeignProgram

COLUMNS = {"valid_from": "TEXT", "valid_until": "TEXT", "supersedes": "TEXT", "superseded_by": "TEXT"}
LAYOUTS = [
    dict(list(COLUMNS.items())[:count])  # the program gained its columns one by one
    for count in range(len(COLUMNS) + 1)
]


@pytest.fixture
def legacy(folder: Path) -> Generator[ForeignProgram]:
    """A database that another program has open, without any table yet."""
    folder.mkdir(parents=True)
    with ForeignProgram(folder / "mem.db") as legacy:
        yield legacy


def make_legacy(legacy: ForeignProgram, columns: dict[str, str], *, rows: int = 3, extra: str = "") -> None:
    more = "".join(f", {name} {kind}" for name, kind in columns.items())
    legacy.run(f"CREATE TABLE memories(id TEXT PRIMARY KEY, text TEXT NOT NULL, created_at TEXT NOT NULL{more}{extra})")
    valid_from = ", valid_from" if "valid_from" in columns else ""
    legacy.run(
        "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < ?)"
        f" INSERT INTO memories(id, text, created_at{valid_from})"
        f" SELECT 'mem_' || i, 'ant number' || i, 't' || i{', i' if valid_from else ''} FROM s",
        rows,
    )


@pytest.mark.parametrize("columns", LAYOUTS, ids=lambda columns: f"{len(columns)}_of_the_later_columns")
def test_an_older_store_opens_in_place(folder: Path, legacy: ForeignProgram, columns: dict[str, str]) -> None:
    make_legacy(legacy, columns)

    with closing(Cavemem(SqliteStore(folder), RecoveryStore(folder))) as cavemem:
        assert [hit.id for hit in cavemem.recall("number2").hits] == ["mem_2"]
        superseded = cavemem.supersede("mem_2", "bee")
        history = cavemem.history("mem_2").history

    valid_from = "2" if "valid_from" in columns else "t2"
    assert [memory.id for memory in history] == ["mem_2", superseded.id]
    assert (history[0].created_at, history[0].valid_from) == ("t2", valid_from)
    assert legacy.run("PRAGMA user_version") == [(schema.LAYOUT,)]
    assert legacy.run("PRAGMA journal_mode") == [("wal",)]
    assert legacy.run("PRAGMA integrity_check") == [("ok",)]


def test_columns_and_tables_of_others_survive(folder: Path, legacy: ForeignProgram) -> None:
    make_legacy(legacy, {}, extra=", mood TEXT DEFAULT 'calm'")
    legacy.run("CREATE TABLE notes(note TEXT)")
    legacy.run("INSERT INTO notes VALUES ('theirs')")
    legacy.run("UPDATE memories SET mood = 'wild' WHERE id = 'mem_1'")

    SqliteStore(folder).close()

    assert legacy.run("SELECT id, mood FROM memories") == [("mem_1", "wild"), ("mem_2", "calm"), ("mem_3", "calm")]
    assert legacy.run("SELECT note FROM notes") == [("theirs",)]


def test_an_older_program_can_go_on_writing(folder: Path, legacy: ForeignProgram) -> None:
    make_legacy(legacy, {})
    with closing(SqliteStore(folder)) as store:
        legacy.run("INSERT INTO memories(id, text, created_at) VALUES ('mem_9', 'zebra', 't9')")

        with store.read() as snapshot:
            found = snapshot.memory("mem_9")
            assert [posting[0] for posting in snapshot.postings("zebra")] != []

    assert found == Memory(id="mem_9", text="zebra", created_at="t9", valid_from="t9")


def test_a_new_store_has_the_table_of_the_contract(folder: Path) -> None:
    SqliteStore(folder).close()

    with ForeignProgram(folder / "mem.db") as another:
        columns = another.run("SELECT name, type, \"notnull\", pk FROM pragma_table_info('memories')")
        indexed = another.run(
            "SELECT i.name FROM pragma_index_list('memories') l, pragma_index_info(l.name) i WHERE l.origin = 'c'"
        )
        secure_delete = another.run("PRAGMA page_size")

    assert columns == [
        ("id", "TEXT", 0, 1),
        ("text", "TEXT", 1, 0),
        ("created_at", "TEXT", 1, 0),
        ("valid_from", "TEXT", 1, 0),
        ("valid_until", "TEXT", 0, 0),
        ("supersedes", "TEXT", 0, 0),
        ("superseded_by", "TEXT", 0, 0),
    ]
    assert sorted(indexed) == [("superseded_by",), ("supersedes",), ("valid_until",)]
    assert secure_delete == [(4096,)]


def test_opening_a_current_store_needs_no_write_lock(folder: Path) -> None:
    SqliteStore(folder).close()

    with ForeignProgram(folder / "mem.db") as another:
        another.run("BEGIN IMMEDIATE")
        another.run("INSERT INTO memories(id, text, created_at, valid_from) VALUES ('x', 'y', '', '')")
        SqliteStore(folder).close()


def digests(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.suffix == ".db"
    }


@pytest.mark.parametrize("journal_mode", ["delete", "wal"])
def test_a_newer_store_is_refused_with_advice_and_left_as_it_is(
    folder: Path, legacy: ForeignProgram, journal_mode: str
) -> None:
    legacy.run(f"PRAGMA journal_mode = {journal_mode}")
    make_legacy(legacy, {})
    legacy.run(f"PRAGMA user_version = {schema.LAYOUT + 1}")
    before = digests(folder)

    with pytest.raises(StoreError, match=f"layout {schema.LAYOUT + 1}.*upgrade cavemem"):
        SqliteStore(folder)

    assert digests(folder) == before
    assert legacy.run("PRAGMA journal_mode") == [(journal_mode,)]


def test_a_log_left_by_a_newer_program_is_not_moved_into_its_store(folder: Path) -> None:
    SqliteStore(folder).close()
    crash = (
        "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1]);"
        f"c.execute('PRAGMA user_version = {schema.LAYOUT + 1}'); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", crash, str(folder / "mem.db")], check=False)
    before = digests(folder)
    assert (folder / "mem.db-wal").stat().st_size > 0

    with pytest.raises(StoreError, match="upgrade cavemem"):
        SqliteStore(folder)

    assert digests(folder) == before


def test_a_table_that_is_no_memory_store_is_refused(folder: Path, legacy: ForeignProgram) -> None:
    legacy.run("CREATE TABLE memories(key TEXT, value TEXT)")
    before = legacy.run("SELECT name FROM sqlite_schema")

    with pytest.raises(StoreError, match="not a memory store"):
        SqliteStore(folder)

    assert legacy.run("SELECT name FROM sqlite_schema") == before


def test_a_database_in_another_text_encoding_is_refused(folder: Path, legacy: ForeignProgram) -> None:
    legacy.run("PRAGMA encoding = 'UTF-16le'")
    make_legacy(legacy, {})

    with pytest.raises(StoreError, match=r"UTF-16le.*load it as UTF-8"):
        SqliteStore(folder)


_MIGRATE_AND_DIE = """
import os, signal, sys
from pathlib import Path
import apsw
from cavemem_mcp.store import files
from cavemem_mcp.store.sqlite import SqliteStore

statements_left = int(sys.argv[2])

class Mortal(apsw.Connection):
    def execute(self, *arguments):
        global statements_left
        if self.in_transaction:
            if statements_left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            statements_left -= 1
        return super().execute(*arguments)

files.apsw.Connection = Mortal
SqliteStore(Path(sys.argv[1]))
print("migrated", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_migration_killed_anywhere_leaves_the_old_store_or_the_new(folder: Path, legacy: ForeignProgram) -> None:
    make_legacy(legacy, {}, rows=50)
    before = legacy.run("SELECT sql FROM sqlite_schema ORDER BY name"), legacy.run("SELECT * FROM memories")
    deaths = 0
    for statements in range(0, 100, 3):
        process = subprocess.run(
            [sys.executable, "-c", _MIGRATE_AND_DIE, str(folder), str(statements)],
            stdout=subprocess.PIPE,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.returncode == -signal.SIGKILL
        if process.stdout:
            break
        deaths += 1
        assert legacy.run("PRAGMA user_version") == [(0,)]
        assert before == (
            legacy.run("SELECT sql FROM sqlite_schema ORDER BY name"),
            legacy.run("SELECT * FROM memories"),
        )
    else:
        pytest.fail("the migration never finished")

    assert deaths > 5
    assert legacy.run("PRAGMA user_version") == [(schema.LAYOUT,)]
    assert legacy.run("SELECT count(*), count(valid_from) FROM memories") == [(50, 50)]
    with closing(SqliteStore(folder)) as store, store.read() as snapshot:
        assert snapshot.totals().documents == 50
