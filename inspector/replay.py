"""Replay scripted MCP Inspector sessions and compare what they print. Started by `run`, which installs Inspector.

A session is a text file. Lines that begin with `$ ` are commands for one bash; what follows each is what it prints on
standard output and then on standard error, without blank lines, and `(exit N)` unless it succeeds. Blank lines and
those that begin with `# ` are for readers. Every session has a folder of its own, with `mcp.json` and an empty memory.
What differs from run to run is replaced by a name: times are numbered in order of appearance, so that equal ones stay
equal.
"""

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
CONFIGURED_ADDRESS = "127.0.0.1:8765"
SESSION_SECONDS_MAX = 300


class Step(NamedTuple):
    """A line of a session that is kept as it is (a comment or blank), or a command."""

    line: str
    is_command: bool


def main() -> int:
    """Replay the sessions that were asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="inspector/run", description="Replay MCP Inspector sessions.")
    parser.add_argument("--record", action="store_true", help="write what was printed in place of what was expected")
    parser.add_argument("session", nargs="*", help="name of a file in sessions, without .txt; all by default")
    arguments = parser.parse_args()
    paths = [FOLDER / "sessions" / f"{name}.txt" for name in arguments.session]
    failed = 0
    for path in paths or sorted((FOLDER / "sessions").glob("*.txt")):
        expected = path.read_text()
        printed = replay(expected)
        if arguments.record:
            path.write_text(printed)
        commands = sum(step.is_command for step in steps(expected))
        differences = list(
            difflib.unified_diff(expected.splitlines(), printed.splitlines(), "expected", "printed", lineterm="")
        )
        if arguments.record:
            print(f"{path.stem}: {commands} commands, {'changed' if differences else 'unchanged'}", flush=True)
        else:
            failed += bool(differences)
            outcome = "not as expected" if differences else "as expected"
            print(f"{path.stem}: {commands} commands, {outcome}", *differences, sep="\n", flush=True)
    return 1 if failed else 0


def steps(session: str) -> list[Step]:
    """Return the commands and comments of a session, without what the commands print."""
    return [
        Step(line, is_command=line.startswith("$ "))
        for line in session.splitlines()
        if not line or line.startswith(("$ ", "# "))
    ]


def replay(session: str) -> str:
    """Run a session's commands in a new folder; return the session with what they printed."""
    with tempfile.TemporaryDirectory(prefix="cavemem-inspector-") as name:
        folder = Path(name)
        environment = _environment(folder)
        with _http_server(folder, environment) as address:
            config = (FOLDER / "mcp.json").read_text()
            (folder / "mcp.json").write_text(config.replace(CONFIGURED_ADDRESS, address))
            commands = [step.line.removeprefix("$ ") for step in steps(session) if step.is_command]
            _run(commands, folder, environment)
            normalised = _normaliser({str(folder): "<folder>", address: CONFIGURED_ADDRESS, _version(): "<version>"})
            lines: list[str] = []
            number = 0
            for step in steps(session):
                lines.append(step.line)
                if step.is_command:
                    lines.extend(line for line in normalised(_printed(folder, number)).splitlines() if line)
                    number += 1
    return "\n".join(lines) + "\n"


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CAVEMAN_", "MCP_"))}
    return {**kept, "HOME": str(folder), "NO_COLOR": "1", "MCP_INSPECTOR_SECRET_STORE": "file"}


@contextmanager
def _http_server(folder: Path, environment: dict[str, str]) -> Generator[str]:
    """Serve over HTTP, with a memory of its own, and give the address."""
    command = ["cavemem", "mcp", "--transport", "streamable-http", "--port", "0"]
    served = {**environment, "CAVEMAN_HOME": str(folder / "served")}
    with subprocess.Popen(command, env=served, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            line = server.stderr.readline()
            found = re.search(r"http://([\d.]+:\d+)/mcp", line)
            if found is None:
                raise SystemExit(f"cavemem does not serve: {line}")
            yield found[1]
        finally:
            server.terminate()


def _run(commands: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
    """Run commands in one bash, each one's output and exit status into files."""
    lines = [
        f"{{ {command}\n}} >{number}.out 2>{number}.err; echo $? >{number}.exit"
        for number, command in enumerate(commands)
    ]
    script = "trap 'mcpdo daemon stop >daemon.out 2>&1' EXIT\n" + "\n".join(lines)
    subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=SESSION_SECONDS_MAX,
    )


def _printed(folder: Path, number: int) -> str:
    parts = [(folder / f"{number}.{kind}").read_text() for kind in ("out", "err")]
    status = int((folder / f"{number}.exit").read_text())
    if status:
        parts.append(f"(exit {status})\n")
    return "".join(part if part.endswith("\n") or not part else part + "\n" for part in parts)


def _version() -> str:
    return subprocess.check_output(["cavemem", "--version"], text=True).split()[1]


def _normaliser(names: dict[str, str]) -> Callable[[str], str]:
    """Return what replaces the volatile parts of everything that one session prints."""
    times: dict[str, str] = {}

    def numbered(time: re.Match[str]) -> str:
        return times.setdefault(time[0], f"<time {len(times) + 1}>")

    def normalise(text: str) -> str:
        for value, name in names.items():
            text = text.replace(value, name)
        return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", numbered, text)

    return normalise


if __name__ == "__main__":
    sys.exit(main())
