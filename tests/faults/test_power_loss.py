"""Whenever the power goes, what was acknowledged is there, what was forgotten is not, and nothing is half there."""

import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from cavemem_mcp import Cavemem, OperationFailedError, open_memory
from cavemem_mcp.model import memory_id, recovery_handle
from tests.faults import invariants
from tests.faults.power import Event, Platter, RecordingDisk

CALLERS = 4
Rows = invariants.Rows


class Writer:
    """Does random operations, and knows what the memories are after each."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._folder = folder
        self._rng = rng
        self._number = 0
        self._current: list[str] = []
        self.forgotten: list[str] = []

    def _text(self) -> str:
        self._number += 1
        words = f"fact{self._number} about the tide at berth{self._rng.randint(1, 9)} "
        return words * self._rng.choice((1, 1, 3, 200))

    def step(self, memory: Cavemem) -> None:
        """Do one operation."""
        choice = self._rng.random()
        if choice < 0.4 or not self._current:
            self._current.append(self._remembered(memory))
        elif choice < 0.6:
            old = self._rng.randrange(len(self._current))
            text = self._text()
            memory.supersede(memory_id(self._current[old]), text)
            self._current[old] = text
        elif choice < 0.8:
            text = self._current.pop(self._rng.randrange(len(self._current)))
            self.forgotten.append(text)
            memory.forget(memory_id(text))
        else:
            memory.recall(self._rng.choice(self._current)[:30], token_budget=10)

    def _remembered(self, memory: Cavemem) -> str:
        text = self._text()
        memory.remember(text)
        return text


def place(files: dict[str, bytes], folder: Path) -> None:
    """Make a folder hold what a power loss left."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    for path, content in files.items():
        (folder / Path(path).name).write_bytes(content)


def cuts(events: list[Event], count: int, rng: random.Random) -> list[int]:
    """Choose moments, those right before and after syncs more often than others."""
    near_syncs = [at + more for at, event in enumerate(events) if event.what == "sync" for more in (0, 1)]
    return sorted(rng.choice(near_syncs) if rng.random() < 0.5 else rng.randint(0, len(events)) for _ in range(count))


def test_a_power_loss_at_any_moment_leaves_all_that_was_acknowledged(
    tmp_path: Path, sized: Callable[[int, int], int], rng: random.Random, figures: Counter[str]
) -> None:
    folder, image = tmp_path / "mem", tmp_path / "image"
    states: list[Rows] = [[]]
    forgotten: list[list[str]] = [[]]
    with RecordingDisk() as disk:
        writer = Writer(folder, rng)
        for _ in range(sized(5, 40)):
            with closing(open_memory(folder)) as memory:
                for _ in range(8):
                    writer.step(memory)
                    states.append(invariants.memories(folder))
                    forgotten.append(list(writer.forgotten))
                    disk.mark("acknowledged")
    platter = Platter()
    acknowledged = at = 0
    for cut in cuts(disk.events, sized(150, 5000), rng):
        for event in disk.events[at:cut]:
            platter.apply(event)
            acknowledged += event.what == "mark"
        at = cut
        place(platter.after_power_loss(rng), image)
        print(f"power lost after event {cut} of {len(disk.events)}, {acknowledged} operations acknowledged")
        with closing(open_memory(image)) as memory:
            assert invariants.memories(image) in states[acknowledged : acknowledged + 2]
            for text in forgotten[acknowledged]:
                with pytest.raises(OperationFailedError):
                    memory.recover(recovery_handle(text))
            memory.remember("the power is back")
        invariants.check(image)
        left = b"".join(path.read_bytes() for path in image.iterdir())
        assert not [text for text in forgotten[acknowledged] if text[:30].encode() in left], "forgotten, and erased"
        figures["power losses simulated"] += 1
        figures["acknowledged writes checked after a power loss"] += len(states[acknowledged])


def test_a_power_loss_leaves_what_callers_that_shared_commits_were_told(
    tmp_path: Path, sized: Callable[[int, int], int], rng: random.Random, figures: Counter[str]
) -> None:
    folder, image = tmp_path / "mem", tmp_path / "image"

    def remember(caller: int) -> None:
        for number in range(8):
            disk.mark(memory.remember(f"caller{caller} saw ship{number}").id)

    with RecordingDisk() as disk, closing(open_memory(folder)) as memory, ThreadPoolExecutor(CALLERS) as callers:
        list(callers.map(remember, range(CALLERS)))
    platter = Platter()
    acknowledged: set[str] = set()
    at = 0
    for cut in cuts(disk.events, sized(50, 1000), rng):
        for event in disk.events[at:cut]:
            platter.apply(event)
            if event.what == "mark":
                acknowledged.add(event.path)
        at = cut
        place(platter.after_power_loss(rng), image)
        open_memory(image).close()
        assert acknowledged <= {dict(row)["id"] for row in invariants.memories(image)}
        invariants.check(image)
        figures["power losses simulated"] += 1
        figures["acknowledged writes checked after a power loss"] += len(acknowledged)


def test_a_power_loss_while_bytes_are_erased_harms_no_page_and_leaves_none_of_them(
    tmp_path: Path, sized: Callable[[int, int], int], rng: random.Random, figures: Counter[str]
) -> None:
    folder, image = tmp_path / "mem", tmp_path / "image"
    open_memory(folder).close()
    with closing(sqlite3.connect(folder / "mem.db")) as another, another:  # leaves what it deletes in the file
        another.execute("PRAGMA secure_delete = OFF")
        for number in range(40):
            text = f"{'secret' if number % 2 else 'public'} tide {number} " * rng.randint(1, 300)
            row = (memory_id(text), text, "t", "t")
            another.execute("INSERT INTO memories(id, text, created_at, valid_from) VALUES (?, ?, ?, ?)", row)
        another.execute("DELETE FROM memories WHERE text GLOB 'secret*'")
    assert b"secret tide" in (folder / "mem.db").read_bytes()
    last = "secret tide of ours"
    with closing(open_memory(folder)) as memory:
        memory.remember(last)
    before = invariants.memories(folder)
    initial = {str(folder / "mem.db"): (folder / "mem.db").read_bytes()}
    with RecordingDisk() as disk, closing(open_memory(folder)) as memory:
        memory.forget(memory_id(last))
        disk.mark("acknowledged")
    after = invariants.memories(folder)
    platter = Platter(initial)
    at = 0
    is_acknowledged = False
    for cut in sorted([*range(len(disk.events) + 1)] * sized(1, 50)):
        for event in disk.events[at:cut]:
            platter.apply(event)
            is_acknowledged = is_acknowledged or event.what == "mark"
        at = cut
        place(platter.after_power_loss(rng), image)
        open_memory(image).close()
        assert invariants.memories(image) in ([after] if is_acknowledged else [before, after])
        invariants.check(image)
        if invariants.memories(image) == after:
            assert not any(b"secret tide" in path.read_bytes() for path in image.iterdir())
        figures["power losses simulated"] += 1
