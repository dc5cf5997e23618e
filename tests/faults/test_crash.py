"""Writers that are killed lose nothing they acknowledged, bring back nothing forgotten, and leave no lock behind."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from cavemem_mcp import open_memory
from cavemem_mcp.model import memory_id
from tests.faults import invariants
from tests.faults.writers import Caller, Row, Rows, Writers
from tests.live import cavemem

ROUNDS_OF_ONE_STORE_MAX = 25
SLOWEST = "milliseconds, the slowest open to first answer after a kill"
SLOWEST_PROCESS = "milliseconds, the slowest start of a process to its answer after a kill"


class Store:
    """A store that writers are killed on, and what all of them were told."""

    def __init__(self, home: Path, figures: Counter[str]) -> None:
        self._home = home
        self._figures = figures
        self._callers: dict[str, Caller] = {}
        self.folder = home / "mem"

    def check(self, writers: Writers) -> None:
        """Open the store after all writers were killed, and look for everything they were told."""
        self._callers |= writers.callers
        begun = time.perf_counter()
        with closing(open_memory(self.folder)) as memory:  # within the time that it waits for locks, or it fails
            memory.recall("tide")
            self._note(SLOWEST, begun)
            memory.remember(f"all writers were killed {len(self._callers)} times")
        found = self._found()
        for name, caller in self._callers.items():
            rows = found.get(name, {})
            assert rows in caller.possible, f"{name} was told otherwise"
            caller.acknowledged, caller.begun = rows, None
        self._figures["acknowledged writes checked after a kill"] += writers.acknowledged
        invariants.check(self.folder)
        content = b"".join(path.read_bytes() for path in self.folder.iterdir())
        forgotten = (text for caller in self._callers.values() for text in caller.forgotten)
        assert not [text for text in forgotten if text.partition("berth")[0].encode() in content], "erased for good"

    def start_process(self) -> None:
        """Let a process start from nothing and answer."""
        begun = time.perf_counter()
        answer = cavemem(self._home, "recall", "tide")
        self._note(SLOWEST_PROCESS, begun)
        assert "hits" in json.loads(answer.stdout), answer.stderr

    def _note(self, name: str, begun: float) -> None:
        self._figures[name] = max(self._figures[name], round((time.perf_counter() - begun) * 1000))

    def _found(self) -> dict[str, Rows]:
        """Return what is stored, by caller, as its texts tell."""
        rows = [dict(row) for row in invariants.memories(self.folder)]
        texts: dict[str | None, str | None] = {row["id"]: row["text"] for row in rows} | {None: None}
        found: dict[str, Rows] = {}
        for row in rows:
            assert row["id"] == memory_id(row["text"])
            caller = row["text"].split()[0].rpartition("n")[0]
            links = texts[row["supersedes"]], texts[row["superseded_by"]]
            found.setdefault(caller, {})[row["text"]] = Row(row["valid_until"] is None, *links)
        return found


@pytest.mark.parametrize("processes", [1, 4])
def test_an_acknowledged_write_survives_the_kill_of_its_writer(
    tmp_path: Path, processes: int, sized: Callable[[int, int], int], rng: random.Random, figures: Counter[str]
) -> None:
    growing: Store | None = None
    kills = 0
    for number in count():
        if kills >= sized(16, 160):
            break
        if growing is None or number % ROUNDS_OF_ONE_STORE_MAX == 0:
            growing = Store(tmp_path / f"growing{number}", figures)
        store = rng.choice((growing, Store(tmp_path / f"fresh{number}", figures)))
        names = [f"r{number}p{process}" for process in range(processes)]
        writers = Writers(store.folder, names, callers=8 // processes, seed=rng.getrandbits(32))
        for _ in names:
            writers.listen(rng.choice((0, 1, rng.randint(1, 100))))
            writers.kill(after_seconds=rng.choice((0, rng.uniform(0, 0.02))))
            kills += 1
        print(f"round {number}: {writers.acknowledged} writes acknowledged in {store.folder}")
        store.check(writers)
        if number % 5 == 0:
            store.start_process()
    figures["writers killed"] += kills
