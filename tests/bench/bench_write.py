"""What remember costs beside a bare durable INSERT: `python -m tests.bench.bench_write [--writes N] [--rounds N]`.

The bare way is one INSERT per transaction into one table without an index, through the same driver with the same
pragmas. All of it is measured on this machine's disk, and again as if its sync took 2 ms longer: then an SQLite file
system (VFS) that sleeps in every sync is the default one of each process, for both ways alike.
"""

import argparse
import contextlib
import multiprocessing
import multiprocessing.synchronize
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Final

import apsw

from cavemem_mcp import Cavemem, OperationFailedError, open_memory
from cavemem_mcp.model import memory_id
from cavemem_mcp.store import files
from cavemem_mcp.store.sqlite import FILE_NAME
from tests.bench import harness
from tests.bench.bench_recall import Corpus

SLOW_SYNC_SECONDS: Final = 0.002
CALLERS: Final = (8, 64)
PROCESSES: Final = 32

Write = Callable[[str], object]


class SlowSync(apsw.VFS):
    """The machine's file system, with a longer sync; the default of this process for as long as it exists."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.syncs = 0
        self._base = apsw.vfs_names()[0]
        super().__init__("slow-sync", self._base, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        """Open a file whose sync sleeps first."""
        vfs = self

        class File(apsw.VFSFile):
            def xSync(self, flags: int) -> None:
                vfs.sleep()
                super().xSync(flags)

        return File(self._base, name, flags)

    def sleep(self) -> None:
        """Take as long as one sync shall take more, and count it."""
        self.syncs += 1
        time.sleep(self._seconds)


@contextlib.contextmanager
def disk(sync_seconds: float) -> Generator[SlowSync | None]:
    """Let this process's databases sync so much more slowly."""
    vfs = SlowSync(sync_seconds) if sync_seconds else None
    try:
        yield vfs
    finally:
        if vfs:
            vfs.unregister()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is measured on one disk: how much longer its sync takes, and how many writes each way makes in a round."""

    sync_seconds: float
    writes: int
    rounds: int
    processes: int = PROCESSES


@dataclass(kw_only=True)
class Samples:
    """What one way took: the seconds of each write, the writes per second of each round, and what was refused."""

    seconds: list[float] = field(default_factory=list[float])
    rates: list[float] = field(default_factory=list[float])
    refused: int = 0

    def add(self, seconds: Sequence[float], elapsed: float) -> None:
        """Add a round that took `elapsed` seconds as a whole."""
        self.seconds += seconds
        self.rates.append(len(seconds) / elapsed)

    @property
    def rate(self) -> float:
        """Writes per second, in the median round."""
        return statistics.median(self.rates)


def bare_insert(connection: files.Connection) -> Write:
    """Return the least that stores a text durably."""
    connection.pragma("journal_mode", "wal")
    connection.execute("CREATE TABLE facts(id TEXT, text TEXT, created_at INTEGER)")

    def write(text: str) -> None:
        connection.execute("INSERT INTO facts VALUES (?, ?, ?)", (memory_id(text), text, time.time_ns()))

    return write


def sequentially(write: Write, texts: Sequence[str]) -> list[float]:
    """Write one text after another; return the seconds of each that was not refused."""
    seconds: list[float] = []
    for text in texts:
        begun = time.perf_counter()
        with contextlib.suppress(OperationFailedError):  # waited longer than any call may
            write(text)
            seconds.append(time.perf_counter() - begun)
    return seconds


def in_threads(write: Write, texts: Sequence[str], callers: int) -> tuple[list[float], float]:
    """Write from several threads at once; return the seconds of each write, and of all together."""
    seconds: list[float] = []
    start = threading.Barrier(callers + 1)

    def work(share: Sequence[str]) -> None:
        start.wait()
        seconds.extend(sequentially(write, share))

    threads = [threading.Thread(target=work, args=(texts[number::callers],)) for number in range(callers)]
    for thread in threads:
        thread.start()
    start.wait()
    begun = time.perf_counter()
    for thread in threads:
        thread.join()
    return seconds, time.perf_counter() - begun


def _process(
    folder: Path,
    sync_seconds: float,
    texts: Sequence[str],
    start: multiprocessing.synchronize.Barrier,
    results: "SimpleQueue[tuple[list[float], float, float]]",
) -> None:
    with disk(sync_seconds), closing(open_memory(folder)) as memory:
        start.wait()
        begun = time.monotonic()  # the same clock in all processes
        seconds = sequentially(memory.remember, texts)
        results.put((seconds, begun, time.monotonic()))


def in_processes(folder: Path, plan: Plan, texts: Sequence[str]) -> tuple[list[float], float]:
    """Remember from several processes at once; return the seconds of each write, and of all together."""
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(plan.processes)
    results: SimpleQueue[tuple[list[float], float, float]] = context.SimpleQueue()
    shares = [texts[number :: plan.processes] for number in range(plan.processes)]
    processes = [
        context.Process(target=_process, args=(folder, plan.sync_seconds, share, start, results)) for share in shares
    ]
    for process in processes:
        process.start()
    all_seconds, begins, ends = zip(*(results.get() for _ in processes), strict=True)
    for process in processes:
        process.join()
    return [second for seconds in all_seconds for second in seconds], max(ends) - min(begins)


def measured(plan: Plan, folder: Path, memory: Cavemem, insert: Write) -> dict[str, Samples]:
    """Let the ways take turns, each with texts of its own; processes come once, at the end."""
    texts = iter(Corpus(plan.writes * (plan.rounds * (2 + len(CALLERS)) + 1)).texts)

    def some() -> list[str]:
        return [next(texts) for _ in range(plan.writes)]

    ways: dict[str, Callable[[], tuple[list[float], float]]] = {
        "bare INSERT": lambda: in_threads(insert, some(), 1),
        "remember, 1 caller": lambda: in_threads(memory.remember, some(), 1),
    }
    for callers in CALLERS:
        ways[f"remember, {callers} callers"] = lambda callers=callers: in_threads(memory.remember, some(), callers)
    samples = {name: Samples() for name in ways}
    for _ in range(plan.rounds):
        for name, way in ways.items():
            samples[name].add(*way())
    processes = samples[f"remember, {plan.processes} processes"] = Samples()
    processes.add(*in_processes(folder, plan, some()))
    for way in samples.values():
        way.refused = plan.writes * len(way.rates) - len(way.seconds)
    return samples


def run(plan: Plan) -> tuple[dict[str, Samples], str]:
    """Measure one disk; return the ways, and a hash of the ids of all that the store then holds."""
    with tempfile.TemporaryDirectory() as name, disk(plan.sync_seconds):
        folder = Path(name) / "mem"
        bare = Path(name) / "bare.db"
        bare.touch()
        with closing(open_memory(folder)) as memory, closing(files.connect(bare)) as connection:
            samples = measured(plan, folder, memory, bare_insert(connection))
        with closing(files.connect(folder / FILE_NAME)) as connection:
            ids = [id for (id,) in connection.execute("SELECT id FROM memories ORDER BY id")]
    expected = sum(len(way.seconds) for name, way in samples.items() if name != "bare INSERT")
    assert len(ids) == expected, f"{len(ids)} of {expected} acknowledged memories are there"
    return samples, harness.result_hash(ids)


def table(title: str, samples: dict[str, Samples]) -> str:
    """Return the table of one disk."""
    bare, alone, *_ = samples.values()
    lines = [
        [
            name,
            harness.milliseconds(way.seconds),
            f"{way.rate:,.0f}",
            f"x{bare.rate / way.rate:.2f}",
            "" if way is bare else f"x{way.rate / alone.rate:.2f}",
            str(way.refused),
        ]
        for name, way in samples.items()
    ]
    head = [title, "one write, ms p50 (p95)", "writes/s", "time per write / bare", "rate / 1 caller", "refused"]
    return harness.markdown(head, lines)


def main() -> None:
    """Print the machine, and a table and a hash for each disk."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writes", type=int, default=512, help="of each way in a round")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(harness.machine())
    for title, seconds in (
        ("this disk", 0.0),
        (f"as if each sync took {SLOW_SYNC_SECONDS * 1000:.0f} ms more (a VFS that sleeps)", SLOW_SYNC_SECONDS),
    ):
        samples, stored = run(Plan(sync_seconds=seconds, writes=arguments.writes, rounds=arguments.rounds))
        print(f"\n{table(title, samples)}\n\nstored {stored}", flush=True)


if __name__ == "__main__":
    main()
