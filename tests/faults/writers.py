"""Processes that write to one store until they are killed, and say on a pipe what they begin and what is acknowledged.

Every caller has memories of its own, so that what must be there follows from what that caller was told.
"""

import json
import multiprocessing
import os
import random
import select
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

from cavemem_mcp import Cavemem, engine, open_memory, tokens
from cavemem_mcp.model import memory_id

LISTEN_SECONDS_MAX = 30
_PIPE_BYTES = 1 << 16
_telling = threading.Lock()


tokens.count("what is slow to load")  # once, in the process that writers are forked from; SQLite must not be used there
engine.compress("is loaded here " * 100)
import_module("cavemem_mcp.store.sqlite")
import_module("zstandard")


class Step(NamedTuple):
    """One operation: remember, supersede, forget or recall a text; `old` is what it supersedes."""

    what: str
    text: str
    old: str = ""


class Row(NamedTuple):
    """What a memory must be: current or not, and the texts before and after it."""

    is_current: bool
    earlier: str | None
    later: str | None


Rows = dict[str, Row]
"""Memories by text."""


def applied(rows: Rows, step: Step) -> Rows:
    """Return what memories become by a step."""
    rows = dict(rows)
    if step.what == "remember":
        rows[step.text] = Row(is_current=True, earlier=None, later=None)
    elif step.what == "supersede":
        rows[step.old] = rows[step.old]._replace(is_current=False, later=step.text)
        rows[step.text] = Row(is_current=True, earlier=step.old, later=None)
    elif step.what == "forget":
        _, earlier, later = rows.pop(step.text)
        if earlier is not None:
            rows[earlier] = rows[earlier]._replace(later=later)
        if later is not None:
            rows[later] = rows[later]._replace(earlier=earlier)
    return rows


class Caller:
    """What one caller has begun and what it was told."""

    def __init__(self) -> None:
        self.acknowledged: Rows = {}
        self.begun: Step | None = None
        self.forgotten: set[str] = set()
        self.count = 0
        """How many writes were acknowledged."""

    def begin(self, step: Step) -> None:
        self.begun = step

    def acknowledge(self) -> None:
        """Take note that the step it began last is done."""
        assert self.begun is not None
        self.acknowledged = applied(self.acknowledged, self.begun)
        if self.begun.what == "forget":
            self.forgotten.add(self.begun.text)
        self.count += self.begun.what != "recall"
        self.begun = None

    @property
    def possible(self) -> list[Rows]:
        """What may be there: what was acknowledged, with or without what was under way."""
        under_way = [] if self.begun is None else [applied(self.acknowledged, self.begun)]
        return [self.acknowledged, *under_way]


def _write(folder: str, name: str, seed: int, callers: int, pipe: Connection) -> None:
    """Run in a process of its own until that is killed."""
    memory = open_memory(folder)

    def call(number: int) -> None:
        caller = f"{name}c{number}"
        try:
            _call(memory, caller, random.Random(f"{seed} {number}"), pipe)
        except BaseException as error:
            _tell(pipe, "error", caller, repr(error))
            raise

    with ThreadPoolExecutor(callers) as threads:
        list(threads.map(call, range(callers)))


def _call(memory: Cavemem, caller: str, rng: random.Random, pipe: Connection) -> None:
    rows: Rows = {}
    number = 0
    while True:
        number += 1
        step = _next(rows, f"{caller}n{number} saw the tide at berth{rng.randint(1, 9)} ", rng)
        _tell(pipe, "begin", caller, *step)
        if step.what == "remember":
            memory.remember(step.text)
        elif step.what == "supersede":
            memory.supersede(memory_id(step.old), step.text)
        elif step.what == "forget":
            assert memory.forget(memory_id(step.text)).forgotten
        else:
            hits = memory.recall(step.text.split()[0], token_budget=20).hits
            assert [hit.id for hit in hits] == [memory_id(step.text)], "what was acknowledged is recalled"
        rows = applied(rows, step)
        _tell(pipe, "done", caller)


def _next(rows: Rows, text: str, rng: random.Random) -> Step:
    text *= rng.choice((1, 1, 2, 100))
    current = [text for text, row in rows.items() if row.is_current]
    choice = rng.random()
    if choice < 0.4 or not current:
        return Step("remember", text)
    if choice < 0.6:
        return Step("supersede", text, rng.choice(current))
    if choice < 0.8:
        return Step("forget", rng.choice(list(rows)))
    return Step("recall", rng.choice(current))


def _tell(pipe: Connection, *words: str) -> None:
    line = json.dumps(words).encode() + b"\n"
    with _telling:
        while line:
            line = line[os.write(pipe.fileno(), line) :]


class Writers:
    """Writing processes on one store; each is killed, none ends by itself."""

    def __init__(self, folder: Path, names: Sequence[str], *, callers: int, seed: int) -> None:
        context = multiprocessing.get_context("forkserver")  # a process that has loaded everything, to fork from
        context.set_forkserver_preload([__name__])
        self.callers: dict[str, Caller] = {}
        self._unread: dict[int, bytes] = {}
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for name in names:
            mine, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_write, args=(str(folder), name, seed, callers, theirs), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(mine)
            self._processes.append(process)

    @property
    def acknowledged(self) -> int:
        """How many writes were acknowledged so far."""
        return sum(caller.count for caller in self.callers.values())

    def listen(self, count: int) -> None:
        """Wait until so many more writes are acknowledged."""
        wanted = self.acknowledged + count
        while self.acknowledged < wanted:
            ready, _, _ = select.select(self._pipes, [], [], LISTEN_SECONDS_MAX)
            assert ready, "the writers do not get on: a lock was left behind"
            for pipe in ready:
                assert self._read(pipe), "a writer ended by itself"

    def kill(self, after_seconds: float) -> None:
        """Kill the process that was started first of those left, at some moment, and hear its last words."""
        threading.Event().wait(after_seconds)
        process, pipe = self._processes.pop(0), self._pipes.pop(0)
        process.kill()
        process.join()
        while self._read(pipe):
            pass
        pipe.close()

    def _read(self, pipe: Connection) -> bool:
        read = os.read(pipe.fileno(), _PIPE_BYTES)
        *lines, rest = (self._unread.get(pipe.fileno(), b"") + read).split(b"\n")
        self._unread[pipe.fileno()] = rest if read else b""  # the last line may be torn
        for line in lines:
            what, name, *words = json.loads(line)
            caller = self.callers.setdefault(name, Caller())
            assert what != "error", words
            if what == "begin":
                caller.begin(Step(*words))
            else:
                caller.acknowledge()
        return bool(read)
