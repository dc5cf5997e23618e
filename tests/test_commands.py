"""The commands that look at all memories or move them, run as users run them."""

import json
import os
import pty
import sqlite3
import stat
import struct
import subprocess
import sys
import tarfile
from contextlib import closing, suppress
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import pytest

from cavemem_mcp.model import memory_id
from tests.live import cavemem, command, environment

FACT = "Zoë drinks 茶\nand reviews before ten"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    assert cavemem(home, "remember", FACT).returncode == 0
    return home


def _printed(home: Path, *arguments: str, stdin: bytes = b"", exit_code: int = 0, said: bytes = b"") -> str:
    finished = cavemem(home, *arguments, stdin=stdin)
    assert (finished.returncode, finished.stderr) == (exit_code, said)
    return finished.stdout.decode()


def _error(home: Path, *arguments: str) -> str:
    finished = cavemem(home, *arguments)
    assert (finished.returncode, finished.stdout) == (1, b"")
    return finished.stderr.decode()


def _on_terminal(home: Path, *arguments: str, columns: int = 60) -> str:
    """Run a command whose output and errors go to a terminal, and return what is shown there."""
    terminal, screen = pty.openpty()
    ioctl(screen, TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(command(*arguments), env=environment(home), stdout=screen, stderr=screen) as process:
        os.close(screen)
        shown = b""
        with suppress(OSError):  # how a terminal says that nobody writes any more
            while chunk := os.read(terminal, 65536):
                shown += chunk
        assert process.wait(timeout=30) == 0
    os.close(terminal)
    return shown.decode().replace("\r\n", "\n")


def test_the_status_is_for_people_or_programs(home: Path) -> None:
    assert "memories  1 current, 0 expired, in 1 chains\n" in _printed(home, "status")
    assert json.loads(_printed(home, "status", "--json"))["largest"]["id"] == memory_id(FACT)


def test_the_list_is_for_people_or_programs(home: Path) -> None:
    (header, line) = _printed(home, "list").splitlines()
    assert header.startswith("id  ")
    assert line.startswith(memory_id(FACT))
    assert line.endswith("Zoë drinks 茶 and reviews before ten")
    assert json.loads(_printed(home, "list", "--json"))["memories"][0]["text"] == FACT


def test_the_list_fits_the_terminal(home: Path) -> None:
    lines = _on_terminal(home, "list", columns=60).splitlines()
    assert lines[1].startswith(memory_id(FACT))
    assert lines[1].endswith("…")
    assert len(lines[1]) == 59  # and one wide character


def test_the_list_takes_its_filters(home: Path) -> None:
    cavemem(home, "supersede", memory_id(FACT), "Zoë drinks coffee")
    assert FACT.partition("\n")[0] not in _printed(home, "list")
    assert FACT.partition("\n")[0] in _printed(home, "list", "--expired", "--contains", "茶")
    assert len(_printed(home, "list", "--since", "9999-01-01").splitlines()) == 1
    said = b"cavemem: there are more than these 1; see more with --limit\n"
    assert len(_printed(home, "list", "--expired", "--limit", "1", said=said).splitlines()) == 2
    assert "since: is neither" in _error(home, "list", "--since", "yesterday")
    assert "--limit: must be an integer" in _error(home, "list", "--limit", "all")


def test_memories_move_by_file_or_by_pipe(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "memories.jsonl"
    assert _printed(home, "export", str(file)) == f"exported 1 memories in 1 chains to {file}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    piped = cavemem(home, "export", "-")
    assert piped.stderr == b""
    assert piped.stdout == file.read_bytes()
    assert _printed(tmp_path / "by file", "import", str(file)) == "imported 1 memories in 1 chains\n"
    assert _printed(tmp_path / "by pipe", "import", "-", stdin=piped.stdout) == "imported 1 memories in 1 chains\n"
    assert cavemem(tmp_path / "by pipe", "export", "-").stdout == piped.stdout
    assert _printed(home, "import", str(file)) == "imported 0 memories in 0 chains\n1 chains were there already\n"


def test_an_import_that_skips_says_what_and_why_and_ends_with_1(home: Path) -> None:
    printed = _printed(home, "import", "-", stdin=b'{"history":[]}\n{"cut\n', exit_code=1)
    assert printed.splitlines() == [
        "imported 0 memories in 0 chains",
        "skipped line 1: the history is empty",
        "skipped line 2: is not JSON; the file may be cut off",
    ]


def test_a_broken_chain_is_reported_by_the_export(home: Path) -> None:
    cavemem(home, "supersede", memory_id(FACT), "Zoë drinks coffee")
    with closing(sqlite3.connect(home / "mem" / "mem.db")) as connection, connection:
        connection.execute("DELETE FROM memories WHERE id = ?", (memory_id(FACT),))
    said = b"cavemem: 1 versions belong to broken chains; each is a chain of its own in the export\n"
    assert json.loads(_printed(home, "export", "-", said=said))["history"][0]["text"] == "Zoë drinks coffee"


def test_progress_is_shown_on_a_terminal_and_nowhere_else(home: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes.md"
    notes.write_text("".join(f"- fact number {number}\n" for number in range(3000)))
    shown = _on_terminal(home, "import", str(notes), columns=80)
    assert "\rimported 2,000 memories" in shown
    assert shown.endswith("\r\x1b[Kimported 3,000 memories in 3,000 chains\n")


def test_a_backup_is_one_file(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "backup.tar"
    assert _printed(home, "backup", str(file)).endswith(f" bytes to {file}\n")
    with tarfile.open(file) as archive:
        assert archive.getnames() == ["mem", "mem/mem.db"]
    assert "give another name" in _error(home, "backup", str(file))


def test_what_cannot_be_read_or_written_is_a_clear_error(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert "cannot be read: No such file" in _error(home, "import", str(tmp_path / "missing"))
    assert "cannot be read: Is a directory" in _error(home, "import", str(tmp_path))
    assert not home.exists()
    assert "No such file" in _error(home, "export", str(tmp_path / "missing" / "file"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["status", "now"], "too many arguments"),
        (["list", "--newest"], "--newest is no option here"),
        (["export"], "FILE is missing"),
        (["import", "a", "b"], "too many arguments"),
        (["backup", "-"], "cannot be a pipe"),
    ],
)
def test_wrong_usage_ends_with_1_and_says_what_is_wrong(tmp_path: Path, arguments: list[str], message: str) -> None:
    finished = cavemem(tmp_path / "home", *arguments)
    assert (finished.returncode, finished.stdout) == (1, b"")
    assert message in finished.stderr.decode()
    assert not (tmp_path / "home").exists()


def test_an_export_that_nobody_reads_is_no_crash(home: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    finished = subprocess.run(
        [sys.executable, "-m", "cavemem_mcp", "export", "-"],
        env=environment(home),
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    os.close(writer)
    assert finished.returncode == 1
    assert finished.stderr == b"cavemem: the answer could not be written: Broken pipe\n"
