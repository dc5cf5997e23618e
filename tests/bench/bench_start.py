"""How long a start takes: `python -m tests.bench.bench_start [--rounds N]`.

The server: from its start as a process to its first answer, in both eras of the protocol, beside the SDK's own server
with one tool that does nothing. The debug commands: their processor time beside an interpreter that does nothing.
"""

import argparse
import compileall
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.bench import harness

ROOT: Final = Path(__file__).parent.parent.parent
PYTHON: Final = (sys.executable,)
CAVEMEM: Final = (*PYTHON, "-c", "import sys; from cavemem_mcp.cli import main; sys.exit(main())")
"""What an installed `cavemem` runs."""
BARE: Final = (*PYTHON, "-c", "from tests.bench.servers import bare; bare()")

_CLIENT: Final = {"name": "bench", "version": "1"}
_REQUESTS: Final[dict[str, Any]] = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": _CLIENT},
    "server/discover": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": _CLIENT,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    },
}
COMMANDS: Final = (("remember", "a fact"), ("recall", "fact"), ("history", "mem_0"), ("help",))
SETTLE_SECONDS: Final = 1.5
"""How long a server idles before its memory is looked at again."""


def _environment(home: Path) -> dict[str, str]:
    return {**os.environ, "CAVEMAN_HOME": str(home)}


def first_answer(command: Sequence[str], home: Path, method: str, *, idle: float = 0) -> tuple[float, float, float]:
    """Start a server and ask it one thing.

    Returns:
        Seconds to the answer, and the MiB that the process then held, and after idling.
    """
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": _REQUESTS[method]})
    begun = time.perf_counter()
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=_environment(home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(request.encode() + b"\n")
        answer = json.loads(process.stdout.readline())
        elapsed = time.perf_counter() - begun
        at_once = _mebibytes(process.pid)
        time.sleep(idle)
        later = _mebibytes(process.pid)
        process.stdin.close()
        process.stdout.read()
    assert "result" in answer, answer
    return elapsed, at_once, later


def _mebibytes(pid: int) -> float:
    """Return the resident memory of a process, where the system tells."""
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:")), 0)


def processor_seconds(command: Sequence[str], home: Path) -> float:
    """Run a command to its end; return the processor time that it took."""
    process = subprocess.Popen(
        command, cwd=ROOT, env=_environment(home), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


def handshake(home: Path, rounds: int) -> str:
    """Return the table of first answers; the servers take turns."""
    lines: list[list[str]] = []
    for method in _REQUESTS:
        seconds: dict[Sequence[str], list[float]] = {BARE: [], CAVEMEM: []}
        for number in range(rounds + 1):
            for command, samples in seconds.items():
                elapsed, _, _ = first_answer(command, home, method)
                if number:
                    samples.append(elapsed)
        bare, ours = seconds.values()
        ratio = statistics.median(ours) / statistics.median(bare)
        lines.append([method, harness.milliseconds(bare), harness.milliseconds(ours), f"x{ratio:.2f}"])
    return harness.markdown(["start to the first answer, ms p50 (p95)", "bare server", "cavemem", "ratio"], lines)


def memory(home: Path, idle: float) -> str:
    """Return the table of resident memory."""
    (_, bare_first, bare_later), (_, first, later) = (
        first_answer(command, home, "initialize", idle=idle) for command in (BARE, CAVEMEM)
    )
    lines = [
        ["at the first answer", f"{bare_first:.1f}", f"{first:.1f}", f"{first - bare_first:+.1f}"],
        ["idle, vocabulary loaded", f"{bare_later:.1f}", f"{later:.1f}", f"{later - bare_later:+.1f}"],
    ]
    return harness.markdown(["resident memory, MiB", "bare server", "cavemem", "difference"], lines)


def commands(home: Path, rounds: int) -> str:
    """Return the table of the debug commands' processor time; they and the bare interpreter take turns."""
    ways = {"(bare interpreter)": (*PYTHON, "-c", "pass")}
    ways |= {f"cavemem {arguments[0]}": (*CAVEMEM, *arguments) for arguments in COMMANDS}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, command in ways.items():
            took = processor_seconds(command, home)
            if number:
                seconds[name].append(took)
    bare, *_ = (statistics.median(samples) for samples in seconds.values())
    lines = [
        [name, harness.milliseconds(samples), f"{(statistics.median(samples) - bare) * 1000:+.1f}"]
        for name, samples in seconds.items()
    ]
    return harness.markdown(["command", "processor time, ms p50 (p95)", "on top of the interpreter, ms"], lines)


def run(*, rounds: int, idle: float) -> list[str]:
    """Measure everything, with the byte code compiled as an installer leaves it; return the tables."""
    for package in (ROOT / "cavemem_mcp", ROOT / "tests" / "bench"):
        compileall.compile_dir(package, quiet=1)
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        return [handshake(home, rounds), memory(home, idle), commands(home, rounds)]


def main() -> None:
    """Print the machine and the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    print(harness.machine())
    for table in run(rounds=arguments.rounds, idle=SETTLE_SECONDS):
        print(f"\n{table}", flush=True)


if __name__ == "__main__":
    main()
