"""How long the hook keeps a prompt waiting: the whole command, from its start to its end, as a host runs it.

`python -m tests.bench.bench_hook [memories] [runs]` prints milliseconds, and a digest of the answers for comparison.
"""

import hashlib
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from cavemem_mcp import open_memory, portability
from tests.live import command, environment

MEMORIES = 100_000
RUNS = 200
WORDS = [f"word{number}" for number in range(20_000)]
WEIGHTS = [1 / (rank + 1) ** 1.07 for rank in range(len(WORDS))]
HUGE = "pasted log line\n" * 300_000


def main(memories: int = MEMORIES, runs: int = RUNS) -> dict[str, list[float]]:
    """Measure each event `runs` times on a store of so many memories; print and return sorted milliseconds."""
    with tempfile.TemporaryDirectory(prefix="cavemem-bench-") as folder:
        home = Path(folder)
        _fill(home, memories)
        events = {
            "session start": {"hook_event_name": "SessionStart", "source": "startup"},
            "prompt": {"hook_event_name": "UserPromptSubmit", "prompt": "word400 word3000 word9000 word30"},
            "huge prompt": {"hook_event_name": "BeforeAgent", "prompt": "word400 word3000 " + HUGE},
            "missing store": {"hook_event_name": "SessionStart", "source": "startup"},
        }
        measured: dict[str, list[float]] = {}
        for name, event in events.items():
            at = home / "missing" if name == "missing store" else home
            measured[name] = _measure(name, json.dumps(event).encode(), at, runs)
    return measured


def _fill(home: Path, memories: int) -> None:
    chance = random.Random(7)
    lines = (" ".join(chance.choices(WORDS, WEIGHTS, k=30)) for _ in range(memories))
    file = home / "notes.txt"
    file.write_text("".join(f"- {line}\n" for line in lines))
    with closing(open_memory(home / "mem")) as memory, file.open("rb") as stream:
        portability.import_(memory, stream, 1_800_000_000_000_000_000, lambda _: None)


def _measure(name: str, event: bytes, home: Path, runs: int) -> list[float]:
    settings = environment(home) | {"CAVEMAN_HOOK": "on"}
    taken: list[float] = []
    answered = 0
    digest = hashlib.sha256()
    cpu_before = _cpu_ms()
    for _ in range(runs):
        start = time.perf_counter()
        finished = subprocess.run(command("hook"), input=event, env=settings, capture_output=True, check=True)
        taken.append((time.perf_counter() - start) * 1000)
        answered += bool(finished.stdout)
        digest.update(finished.stdout)
    cpu = (_cpu_ms() - cpu_before) / runs
    taken.sort()
    p50, p99 = taken[runs // 2], taken[min(runs * 99 // 100, runs - 1)]
    load = os.getloadavg()[0]
    print(
        f"{name:<14} {runs} runs  p50 {p50:.0f} ms  p99 {p99:.0f} ms  processor {cpu:.0f} ms  {answered} answered"
        f"  load {load:.1f}  {digest.hexdigest()[:12]}"
    )
    return taken


def _cpu_ms() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1000


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
