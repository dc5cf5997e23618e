"""A store that another program filled: answered exactly from the first moment, and indexed beside the work."""

import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

from cavemem_mcp.model import memory_id
from tests.live import answer, command, environment, recalled, stdio_client
from tests.server.processes import poll

ROWS = 1500


def fill(home: Path) -> None:
    """Make a store of the oldest layout, as the Go program left it."""
    (home / "mem").mkdir(parents=True)
    with closing(sqlite3.connect(home / "mem" / "mem.db")) as connection, connection:
        connection.execute("CREATE TABLE memories (id TEXT PRIMARY KEY, text TEXT NOT NULL, created_at TEXT NOT NULL)")
        texts = [f"legacy fact number{number} of the quay" for number in range(ROWS)]
        connection.executemany(
            "INSERT INTO memories VALUES (?, ?, '2024-01-01T00:00:00Z')", [(memory_id(text), text) for text in texts]
        )


def pending(home: Path) -> int:
    with closing(sqlite3.connect(f"file:{home / 'mem' / 'mem.db'}?mode=ro", uri=True)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM idx_pending").fetchone()
    return count


def kill_while_indexing(home: Path) -> None:
    process = subprocess.Popen(
        command(), env=environment(home), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    assert b"indexing" in process.stderr.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate()


async def test_a_big_legacy_store_is_exact_at_once_and_indexed_in_the_background(tmp_path: Path) -> None:
    fill(tmp_path)
    async with stdio_client(tmp_path) as client:
        assert await recalled(client, "number77") == ["legacy fact number77 of the quay"]
        first = await answer(client, "recall", query="quay number77 number78")
        poll(lambda: pending(tmp_path) == 0)
        assert await answer(client, "recall", query="quay number77 number78") == first
        assert len(first["hits"]) == 2


async def test_a_catch_up_that_was_killed_is_resumed(tmp_path: Path) -> None:
    fill(tmp_path)
    kill_while_indexing(tmp_path)
    async with stdio_client(tmp_path) as client:
        assert await recalled(client, "number1499") == ["legacy fact number1499 of the quay"]
        poll(lambda: pending(tmp_path) == 0)
        assert await recalled(client, "number3") == ["legacy fact number3 of the quay"]
