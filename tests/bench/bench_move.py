"""How long memories take to leave and to arrive: `python -m tests.bench.bench_move [--memories N]`.

The real commands, `cavemem export` and `cavemem import` into an empty home. Every tenth fact has a superseded version,
and memories are about 30 words, as in `bench_recall`. The last line imports the same file once more, which adds none.
"""

import argparse
import dataclasses
import hashlib
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from cavemem_mcp import open_memory
from cavemem_mcp.formats import as_line
from cavemem_mcp.model import Memory, memory_id, timestamp
from tests.bench import harness
from tests.bench.bench_recall import Corpus
from tests.live import command, environment


def chains(texts: Sequence[str]) -> list[list[Memory]]:
    """Return texts as chains: every tenth supersedes the one before it."""
    made: list[list[Memory]] = []
    for number, text in enumerate(texts):
        stored = timestamp(number * 1_000_000_000)
        memory = Memory(id=memory_id(text), text=text, created_at=stored, valid_from=stored)
        if number % 10 == 9:
            (older,) = made.pop()
            made.append(
                [
                    dataclasses.replace(older, valid_until=stored, superseded_by=memory.id),
                    dataclasses.replace(memory, supersedes=older.id),
                ]
            )
        else:
            made.append([memory])
    return made


def run(memories: int) -> tuple[str, str]:
    """Measure; return the table, and a hash of what the export holds."""
    with tempfile.TemporaryDirectory(prefix="cavemem-bench-") as name:
        folder = Path(name)
        file, again = folder / "in.jsonl", folder / "out.jsonl"
        file.write_bytes(b"".join(map(as_line, chains(Corpus(memories).texts))))
        rows = [
            _measured("import", folder / "home", "import", str(file)),
            _measured("export", folder / "home", "export", str(again)),
            _measured("import again", folder / "home", "import", str(file)),
        ]
        with closing(open_memory(folder / "home" / "mem")) as memory, memory.store.read() as snapshot:
            statistics = snapshot.statistics()
            assert statistics.current + statistics.expired == memories
        lines = sorted(again.read_bytes().splitlines(keepends=True))
        assert lines == sorted(file.read_bytes().splitlines(keepends=True)), "what left is not what came"
    table = harness.markdown([f"{memories:,} memories", "seconds", "of processor time"], rows)
    return table, hashlib.sha256(b"".join(lines)).hexdigest()[:12]


def _measured(label: str, home: Path, *arguments: str) -> list[str]:
    before, begun = _processor_seconds(), time.perf_counter()
    subprocess.run(command(*arguments), env=environment(home), check=True, capture_output=True)
    seconds = time.perf_counter() - begun
    return [label, f"{seconds:.1f}", f"{_processor_seconds() - before:.1f}"]


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print the machine, the table and the hash."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memories", type=int, default=100_000)
    arguments = parser.parse_args()
    print(f"{harness.machine()}, load {os.getloadavg()[0]:.1f}\n")
    table, stored = run(arguments.memories)
    print(f"{table}\n\nexported {stored}")


if __name__ == "__main__":
    main()
