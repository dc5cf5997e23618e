"""Another program at the same files: Python's own `sqlite3`, which knows nothing of ours, in a process of its own.

It must be another process: two copies of the SQLite library in one process undo each other's POSIX locks.
"""

import pickle
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_SCRIPT = """
import pickle, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=float(sys.argv[2]))
while True:
    try:
        sql, values = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    try:
        answer = connection.execute(sql, values).fetchall()
    except sqlite3.Error as error:
        answer = error
    pickle.dump(answer, sys.stdout.buffer)
    sys.stdout.buffer.flush()
"""


class ForeignProgram:
    """Runs statements through Python's `sqlite3`; each commits by itself unless it begins a transaction."""

    def __init__(self, path: Path, *, timeout_s: float = 5) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT, str(path), str(timeout_s)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    @property
    def id(self) -> int:
        """The process id."""
        return self._process.pid

    def run(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows; an error of SQLite is raised here."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        pickle.dump((sql, values), process.stdin)
        process.stdin.flush()
        answer = pickle.load(process.stdout)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
