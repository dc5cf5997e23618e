"""The doctor sees what is wrong with a store in any state, says what to do, shows no text, and changes nothing."""

import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from cavemem_mcp import StoreError, doctor, open_memory
from cavemem_mcp.store import diagnosis, schema
from cavemem_mcp.store.files import Connection
from tests.live import cavemem
from tests.store.foreign import ForeignProgram

SECRET = "marzipan"
CHECKS = [
    *("folder", "files", "sqlite", "integrity", "layout", "memories", "index", "originals", "log", "space", "programs")
]


needs_linux = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux tells who has a file open")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the home of a store that nobody has open, with a chain and 30 memories of one word in common."""
    home = tmp_path_factory.mktemp("original")
    with closing(open_memory(home / "mem")) as memory:
        old = memory.remember(f"The {SECRET} is in the kitchen.").id
        memory.supersede(old, f"The {SECRET} is in the cellar.")
        for number in range(30):
            memory.remember(f"{SECRET} number{number}")
        (hit,) = memory.recall(f"{SECRET} cellar", limit=1, token_budget=3).hits
        assert hit.recovery_handle
    return home


@pytest.fixture
def home(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "home"))


@pytest.fixture
def folder(home: Path) -> Path:
    return home / "mem"


def change(folder: Path, statements: str) -> None:
    """Let another program change the database."""
    with closing(sqlite3.connect(folder / "mem.db")) as connection:
        connection.executescript(statements)


def change_originals(folder: Path, statements: str) -> None:
    with closing(sqlite3.connect(folder / "ccr.db")) as connection:
        connection.executescript(statements)


def memories(folder: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(folder / "mem.db")) as connection:
        return connection.execute("SELECT rowid, * FROM memories ORDER BY rowid").fetchall()


def state(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def examined(folder: Path) -> dict[str, doctor.Check]:
    """Return the checks by name; nothing has changed and no text is shown."""
    before = state(folder)
    report = doctor.examine(folder)
    assert state(folder) == before
    assert SECRET not in report.as_text() + json.dumps(report.as_json())
    assert [check.name for check in report.checks] == CHECKS
    assert report.is_healthy == ("healthy\n" in report.as_text())
    return {check.name: check for check in report.checks}


def problems(folder: Path) -> dict[str, str]:
    return {name: check.found for name, check in examined(folder).items() if check.status == "problem"}


def test_a_healthy_store_has_no_problem(folder: Path) -> None:
    found = examined(folder)

    assert {check.status for name, check in found.items() if name != "programs"} == {"ok"}
    assert (found["memories"].found, found["index"].found) == ("31 current, 1 expired", "31 memories, as a fresh one")
    assert found["originals"].found == "1 of shortened hits"


def test_the_command_is_for_people_or_programs_and_ends_with_1_on_a_problem(home: Path) -> None:
    healthy = cavemem(home, "doctor")
    assert (healthy.returncode, healthy.stderr) == (0, b"")
    assert healthy.stdout.decode().splitlines()[0] == str(home / "mem")
    assert [line.split()[1] for line in healthy.stdout.decode().splitlines()[1:-1]] == CHECKS

    (home / "mem").chmod(0o755)
    ill = cavemem(home, "doctor", "--json")
    assert (ill.returncode, ill.stderr) == (1, b"")
    shown = json.loads(ill.stdout)
    assert set(shown) == {"healthy", "path", "checks"}
    assert (shown["healthy"], shown["path"]) == (False, str(home / "mem"))
    assert shown["checks"][0] == {
        "name": "folder",
        "status": "problem",
        "found": "may be used by other users",
        "advice": "chmod 700; the next use does so too",
    }


@pytest.mark.parametrize("arguments", [["doctor", "now"], ["doctor", "--repair"]])
def test_wrong_usage_is_told(home: Path, arguments: list[str]) -> None:
    assert cavemem(home, *arguments).returncode == 1


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert set(problems(tmp_path / "home" / "mem")) == {"folder", "files"}
    assert cavemem(tmp_path / "home", "doctor").returncode == 1
    assert cavemem(tmp_path / "home", "doctor", "--rebuild-index").returncode == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_a_store_stays_empty(tmp_path: Path) -> None:
    (tmp_path / "mem").mkdir(mode=0o700)
    assert problems(tmp_path / "mem") == {"files": "there is no mem.db"}


def test_a_folder_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "mem").touch()
    report = doctor.examine(tmp_path / "mem")
    assert report.checks[0].found == "is not a folder"
    (tmp_path / "mem").unlink()
    (tmp_path / "mem").symlink_to(tmp_path / "nowhere")
    assert doctor.examine(tmp_path / "mem").checks[0].found == "is a symbolic link, which is refused"


def test_loose_permissions_are_told_and_left(folder: Path) -> None:
    (folder / "ccr.db").chmod(0o644)
    assert problems(folder) == {"files": "ccr.db may be used by other users"}
    assert (folder / "ccr.db").stat().st_mode & 0o777 == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_another_users_file_is_told(folder: Path) -> None:
    os.chown(folder / "mem.db", 12345, -1)
    assert problems(folder) == {"files": "mem.db belongs to another user, which is refused"}


def test_a_newer_layout_is_told_and_an_older_one_is_no_problem(folder: Path) -> None:
    change(folder, f"PRAGMA user_version = {schema.LAYOUT + 1}")
    assert "upgrade cavemem" in problems(folder)["layout"]
    change(folder, "PRAGMA user_version = 0")
    found = examined(folder)
    assert found["layout"].found == "0, an older one; the next use brings it up to date"
    assert (found["memories"].status, found["index"].status) == ("unknown", "unknown")


WRONG = {
    "a_document_missing": ("DELETE FROM idx_docs WHERE doc = 3", "1 current memories missing"),
    "a_document_too_many": ("INSERT INTO idx_docs(id, dl) VALUES ('mem_0', 0)", "1 memories too many"),
    "a_length": ("UPDATE idx_docs SET dl = dl + 1 WHERE doc = 3", "1 memories with another length"),
    "a_posting_missing": ("DELETE FROM idx_postings WHERE doc = 3", "2 words counted wrongly"),
    "a_posting_altered": ("UPDATE idx_postings SET f = f + 1 WHERE doc = 3", "2 words with wrong entries"),
    "a_count": ("UPDATE idx_terms SET df = df + 1 WHERE tid = 2", "1 words counted wrongly"),
    "a_word_left": ("INSERT INTO idx_terms(term, df) VALUES ('left', 0)", "1 words of no memory"),
    "a_word_missing": ("DELETE FROM idx_terms WHERE tid = 2", "1 words missing; 1 words without a name"),
    "totals": ("UPDATE idx_totals SET n = n + 1", "its totals are not the sums of its memories"),
    "no_totals": ("DELETE FROM idx_totals", "its totals are not the sums of its memories"),
    "two_totals": ("INSERT INTO idx_totals VALUES (1, 1)", "its totals are not the sums of its memories"),
    "a_trigger": ("DROP TRIGGER idx_memory_deleted", "idx_memory_deleted missing or altered"),
    "a_table": ("DROP TABLE idx_postings", "idx_postings missing or altered"),
    "a_trigger_altered": (
        """PRAGMA writable_schema = 1;
        UPDATE sqlite_schema SET sql = replace(sql, 'NEW.id', 'NEW.ie') WHERE name = 'idx_memory_inserted'""",
        "idx_memory_inserted missing or altered",
    ),
    "term_rules": ("UPDATE idx_meta SET value = 'others'", "it was made by other rules for words"),
    "unseen_by_triggers": (
        "PRAGMA writable_schema = 1; DROP TRIGGER idx_memory_updated;"
        f"UPDATE memories SET text = '{SECRET} elsewhere' WHERE rowid = 5;"
        + next(sql for name, sql in schema.OBJECTS.items() if name == "idx_memory_updated"),
        "1 words missing",
    ),
}
"""What is done to the index, and how the doctor calls it."""


@pytest.mark.parametrize(("statements", "said"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_index_is_seen_and_rebuilt_without_touching_the_memories(
    folder: Path, statements: str, said: str
) -> None:
    change(folder, statements)
    before = memories(folder)
    assert said in problems(folder)["index"]
    assert examined(folder)["index"].advice == "run: cavemem doctor --rebuild-index"

    doctor.rebuild_index(folder)

    assert "index" not in problems(folder)
    assert examined(folder)["index"].found == "31 memories, as a fresh one"
    assert memories(folder) == before


def test_the_command_rebuilds_and_then_looks(home: Path, folder: Path) -> None:
    change(folder, "DELETE FROM idx_postings")
    assert cavemem(home, "doctor").returncode == 1

    rebuilt = cavemem(home, "doctor", "--rebuild-index", "--json")

    assert (rebuilt.returncode, rebuilt.stderr) == (0, b"")
    assert json.loads(rebuilt.stdout)["healthy"]


def test_an_index_of_other_values_than_its_column_has_is_seen_and_rebuilt(folder: Path) -> None:
    rename = (
        "PRAGMA writable_schema = 1;"
        "UPDATE sqlite_schema SET sql = replace(sql, '({})', '({})') WHERE name = 'idx_memories_valid_until'"
    )
    change(folder, rename.format("valid_until", "created_at"))
    change(folder, "REINDEX idx_memories_valid_until")
    change(folder, rename.format("created_at", "valid_until"))
    before = memories(folder)
    assert "not indexed as they are" in problems(folder)["index"]

    doctor.rebuild_index(folder)

    assert problems(folder) == {}
    assert memories(folder) == before


def test_a_file_that_may_not_be_written_is_told(folder: Path) -> None:
    data = bytearray((folder / "mem.db").read_bytes())
    data[18] = 3
    (folder / "mem.db").write_bytes(data)
    assert problems(folder) == {"integrity": "damaged: the header forbids writing"}


def test_other_tables_of_originals_are_told(folder: Path) -> None:
    change_originals(folder, "ALTER TABLE originals DROP COLUMN compressor")
    assert problems(folder) == {"originals": "originals missing or altered"}


def test_an_original_that_its_index_does_not_find_is_told(folder: Path) -> None:
    change_originals(
        folder,
        "PRAGMA writable_schema = 1; UPDATE sqlite_schema SET sql = replace(sql, '(size)', '(tokens_after)')"
        "WHERE name = 'originals_size'",
    )
    assert "damaged: row 1 missing from index originals_size" in problems(folder)["originals"]


def test_memories_of_another_program_wait_without_being_a_problem(folder: Path) -> None:
    change(folder, "INSERT INTO memories(id, text, created_at, valid_from) VALUES ('a', 'pear', '', '')")
    change(folder, "UPDATE memories SET text = text || ' fig', id = id || '.' WHERE rowid IN (4, 5)")
    assert problems(folder) == {}
    assert examined(folder)["index"].found == "31 memories, 5 of another program waiting, as a fresh one"
    doctor.rebuild_index(folder)
    assert examined(folder)["index"].found == "32 memories, as a fresh one"


def test_an_altered_text_is_seen_by_its_id(folder: Path) -> None:
    change(folder, "UPDATE memories SET text = text || '!' WHERE rowid = 5")
    (id,) = [row[1] for row in memories(folder) if row[0] == 5]
    assert problems(folder) == {"memories": f"altered: {id}"}


def test_many_altered_texts_are_counted(folder: Path) -> None:
    change(folder, "UPDATE memories SET text = text || '!' WHERE rowid > 20")
    assert problems(folder)["memories"].endswith(" and 7 more")


def test_a_forgotten_memory_that_is_not_erased_is_a_problem(folder: Path) -> None:
    change(folder, "INSERT INTO erasures VALUES ('ccr_0')")
    assert problems(folder) == {"memories": "bytes of 1 forgotten memories are still in the files"}
    open_memory(folder).close()
    assert problems(folder) == {}


def test_a_damaged_original_is_counted(folder: Path) -> None:
    change_originals(
        folder,
        "INSERT INTO originals SELECT handle || '0', created_at, '', '', 0, 0, 0, original FROM originals;"
        "INSERT INTO originals VALUES ('ccr_1', '', '', '', 0, 0, 0, x'00')",
    )
    assert problems(folder) == {"originals": "2 of 3 damaged"}


def test_a_large_log_and_a_full_disk_are_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LOG_BYTES_MAX", -1)
    monkeypatch.setattr(doctor, "SPACE_BYTES_MIN", 1 << 62)
    monkeypatch.setattr(doctor, "SQLITE_MIN", (4,))
    assert set(problems(folder)) == {"log", "space", "sqlite"}


def test_a_check_that_fails_unexpectedly_is_no_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError(SECRET)

    monkeypatch.setattr(doctor.survey, "statistics", fail)
    found = examined(folder)
    assert found["memories"].found == "failed unexpectedly (ZeroDivisionError); the log says where"
    assert (found["memories"].status, found["index"].status) == ("problem", "unknown")
    monkeypatch.setattr(doctor, "_space", fail)
    assert examined(folder)["space"].status == "unknown"


@pytest.mark.parametrize("times", [1, 100])
def test_a_file_that_changes_meanwhile_is_looked_at_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    numbers = iter(range(times))
    look = doctor.survey.statistics

    def change_and_look(connection: doctor.Connection) -> doctor.survey.Statistics:
        for number in numbers:
            change(folder, f"INSERT INTO memories(id, text, created_at, valid_from) VALUES ('{number}', 'fig', '', '')")
            break
        return look(connection)

    monkeypatch.setattr(doctor.survey, "statistics", change_and_look)
    checks = {check.name: check for check in doctor.examine(folder).checks}

    if times == 1:
        assert checks["memories"].found == "32 current, 1 expired"
    else:
        changed = "another program changed the file while it was read"
        assert (checks["memories"].status, checks["memories"].found) == ("unknown", changed)


def test_a_file_that_goes_away_while_it_is_looked_at_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = doctor.diagnosis.diagnose_index

    def look_last(connection: Connection) -> diagnosis.IndexDiagnosis:
        found = look(connection)
        (folder / "mem.db").unlink()
        return found

    monkeypatch.setattr(doctor.diagnosis, "diagnose_index", look_last)

    report = doctor.examine(folder)

    assert [check.name for check in report.checks] == CHECKS
    assert "No such file" in next(check.found for check in report.checks if check.name == "index")
    assert not report.is_healthy


def test_rebuilding_a_file_that_changes_meanwhile_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def change_and_look(*_: object) -> list[str]:
        change(folder, "INSERT INTO memories(id, text, created_at, valid_from) VALUES ('a', 'fig', '', '')")
        return []

    monkeypatch.setattr(diagnosis, "damage", change_and_look)
    with pytest.raises(StoreError, match="another program changed the file while it was read; repeat"):
        doctor.rebuild_index(folder)


@contextmanager
def another(folder: Path) -> Generator[ForeignProgram]:
    with ForeignProgram(folder / "mem.db") as program:
        program.run("SELECT count(*) FROM memories")
        yield program


def name(program: ForeignProgram) -> str:
    return Path(f"/proc/{program.id}/comm").read_text().strip()


@needs_linux
def test_programs_that_have_the_store_open_are_named(folder: Path) -> None:
    assert examined(folder)["programs"].found == "none has it open"
    with another(folder) as program:
        assert examined(folder)["programs"].found == f"{program.id} ({name(program)})"
        program.run("BEGIN IMMEDIATE")
        assert examined(folder)["programs"].found == f"{program.id} ({name(program)}, writes now)"
        assert problems(folder) == {}


@needs_linux
def test_a_stopped_writer_is_a_problem(folder: Path) -> None:
    with another(folder) as program:
        program.run("BEGIN IMMEDIATE")
        os.kill(program.id, signal.SIGSTOP)
        try:
            os.waitid(os.P_PID, program.id, os.WSTOPPED | os.WNOWAIT)
            held = f"{program.id} ({name(program)}) is stopped and holds the write lock"
            assert problems(folder) == {"programs": held}
            assert examined(folder)["programs"].advice == f"writers wait for it: kill -CONT {program.id}, or end it"
        finally:
            os.kill(program.id, signal.SIGCONT)


def test_a_system_that_does_not_tell_who_has_a_file_open_is_no_problem(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor.processes, "_LOCKS", folder / "missing")
    assert examined(folder)["programs"].status == "unknown"


def test_a_store_in_use_is_seen_as_it_is_now(folder: Path) -> None:
    with another(folder) as program:
        program.run("DELETE FROM memories WHERE rowid > 30")
        found = examined(folder)
        assert found["memories"].found == "29 current, 1 expired"
        assert found["log"].found != "0 bytes"


def test_rebuilding_beside_another_program_is_allowed(folder: Path) -> None:
    change(folder, "DELETE FROM idx_postings")
    with another(folder) as program:
        doctor.rebuild_index(folder)
        assert program.run("SELECT count(*) FROM idx_postings")[0][0] > 0
    assert problems(folder) == {}


def test_rebuilding_is_refused_while_another_program_writes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.files, "BUSY_MS_MAX", 100)
    with another(folder) as program:
        program.run("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another program holds the store"):
            doctor.rebuild_index(folder)
        program.run("COMMIT")


def test_rebuilding_is_refused_where_the_file_is_damaged_or_of_another_layout(folder: Path) -> None:
    for version, message in ((0, "older layout"), (schema.LAYOUT + 1, "upgrade cavemem")):
        change(folder, f"PRAGMA user_version = {version}")
        before = state(folder)
        with pytest.raises(StoreError, match=message):
            doctor.rebuild_index(folder)
        assert state(folder) == before
    change(folder, f"PRAGMA user_version = {schema.LAYOUT}")
    data = bytearray((folder / "mem.db").read_bytes())
    data[5 * 4096 : 6 * 4096] = bytes(4096)
    (folder / "mem.db").write_bytes(data)
    with pytest.raises(StoreError, match="damaged"):
        doctor.rebuild_index(folder)
    assert (folder / "mem.db").read_bytes() == data
    assert "integrity" in problems(folder)
