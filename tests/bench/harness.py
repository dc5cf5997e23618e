"""What all benchmarks share: fair timing, a table of medians and ratios, a hash of results, the machine's name."""

import gc
import hashlib
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import apsw

T = TypeVar("T")


def machine() -> str:
    """Return one line that names the machine and the versions that matter."""
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = (line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line)
        processor = next(names, processor)
    return (
        f"{processor}, {os.cpu_count()} CPUs, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, apsw {apsw.apsw_version()}"
    )


def timed(ways: Mapping[str, Callable[[T], object]], inputs: Sequence[T], *, rounds: int) -> dict[str, list[float]]:
    """Return the seconds that each way took for each input, in every round after one to warm up.

    The ways take turns in each round, so that whatever else the machine does meets all of them alike.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    gc.collect()
    gc.freeze()  # what was prepared is not the ways' garbage
    try:
        for number in range(rounds + 1):
            for name, way in ways.items():
                for input in inputs:
                    begun = time.perf_counter()
                    way(input)
                    if number:
                        seconds[name].append(time.perf_counter() - begun)
    finally:
        gc.unfreeze()
    return seconds


def result_hash(results: Iterable[object]) -> str:
    """Return 12 hex digits that change with any bit of the results."""
    digest = hashlib.sha256()
    for result in results:
        digest.update(repr(result).encode() + b"\n")
    return digest.hexdigest()[:12]


@dataclass(kw_only=True)
class Table:
    """Lines of a benchmark, each with the seconds of the first way and of those beside it; prints milliseconds.

    Attributes:
        ways: Names of the ways; ratios say how many times longer than the first the others take.
    """

    title: str
    ways: Sequence[str]
    _lines: list[list[str]] = field(default_factory=list[list[str]])

    def add(self, label: str, seconds: Mapping[str, Sequence[float]]) -> None:
        """Add a line; a way without seconds is left blank."""
        first = statistics.median(seconds[self.ways[0]])
        cells = [label]
        for way in self.ways:
            samples = seconds.get(way, ())
            if not samples:
                cells.append("")
                continue
            median = statistics.median(samples)
            ratio = "" if way == self.ways[0] else f" x{median / first:.1f}"
            cells.append(f"{milliseconds(samples)}{ratio}")
        self._lines.append(cells)

    def __str__(self) -> str:
        """Return the table as Markdown."""
        return markdown([self.title, *self.ways], self._lines)


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table as Markdown."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def milliseconds(samples: Sequence[float]) -> str:
    """Return the median of some seconds, and in parentheses what 95 % of them do not exceed, in milliseconds."""
    return f"{statistics.median(samples) * 1000:.3f} ({percentile(samples, 95) * 1000:.3f})"


def percentile(samples: Sequence[float], percent: int) -> float:
    """Return the sample that `percent` of all do not exceed."""
    return sorted(samples)[(len(samples) * percent - 1) // 100]
