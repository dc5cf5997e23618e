"""A server that has answered for long is no larger than one that has just begun."""

import json
import random
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from cavemem_mcp.model import memory_id, recovery_handle
from tests.faults import torture
from tests.remote.server import remote_server
from tests.server.processes import Json, call, line_client

MEMORIES_MAX: Final = 300
SAMPLES: Final = 100
RSS_GROWTH_KIB_MAX: Final = 24 * 1024
THREADS_GROWTH_MAX: Final = 4
FILES_GROWTH_MAX: Final = 8
WAL_KIB_MAX: Final = 64 * 1024
"""Twice what the store lets its log reach before it is written back."""

Ask = Callable[[bytes], Json]


@dataclass(frozen=True, kw_only=True)
class _Size:
    """What a server process takes at one moment."""

    rss_kib: int
    files: int
    threads: int
    wal_kib: int


def _size(pid: int, home: Path) -> _Size:
    process = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    return _Size(
        rss_kib=int(status["VmRSS"].split()[0]),
        files=len(list((process / "fd").iterdir())),
        threads=int(status["Threads"]),
        wal_kib=sum(path.stat().st_size for path in home.rglob("*-wal")) // 1024,
    )


class _Agent:
    """Calls everything that a server offers in any order, and knows what must be answered."""

    def __init__(self, ask: Ask, rng: random.Random) -> None:
        self._ask = ask
        self._rng = rng
        self._count = 0
        self._current: dict[str, str] = {}
        self._expired: list[str] = []

    def step(self) -> None:
        """Do one thing."""
        if not self._current:
            self._remember()
        elif len(self._current) + len(self._expired) > MEMORIES_MAX:
            self._forget()
        else:
            likely, rare = [self._remember, self._recall], [self._supersede, self._history, self._read, self._complain]
            self._rng.choice(likely * 3 + rare)()

    def _request(self, method: str, **params: object) -> Json:
        return self._ask(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode())

    def _call(self, tool: str, **arguments: object) -> Json:
        structured: Json = self._ask(json.dumps(call(tool, arguments)).encode())["result"]["structuredContent"]
        return structured

    def _new_text(self) -> str:
        self._count += 1
        lines = self._rng.choice([1, 1, 1, 1, 1, 1, 1, 500])
        return "".join(f"Fact quay{self._count} is in line {n} of a log of the harbour\n" for n in range(lines))

    def _any(self) -> tuple[str, str]:
        return self._rng.choice(list(self._current.items()))

    def _remember(self) -> None:
        text = self._new_text()
        id = self._call("remember", text=text)["id"]
        assert id == memory_id(text)
        self._current[id] = text

    def _supersede(self) -> None:
        old, _ = self._any()
        text = self._new_text()
        assert self._call("supersede", id=old, text=text)["supersedes"] == old
        del self._current[old]
        self._expired.append(old)
        self._current[memory_id(text)] = text

    def _recall(self) -> None:
        id, text = self._any()
        (hit,) = self._call("recall", query=text.split()[1])["hits"]
        assert hit["id"] == id
        if "recovery_handle" in hit:
            assert hit["recovery_handle"] == recovery_handle(text)
            assert self._call("recover", handle=hit["recovery_handle"])["text"] == text
        else:
            assert hit["text"] == text

    def _history(self) -> None:
        id, text = self._any()
        assert self._call("history", id=id)["history"][-1]["text"] == text

    def _forget(self) -> None:
        id = self._expired.pop(0) if self._expired else self._any()[0]
        self._current.pop(id, None)
        assert self._call("forget", id=id) == {"forgotten": True}
        assert self._call("forget", id=id) == {"forgotten": False}
        assert self._call("history", id=id)["error"] == "cave_history_failed"

    def _read(self) -> None:
        id, text = self._any()
        read = self._request("resources/read", uri=f"cavemem://memory/{id}")
        assert read["result"]["contents"][0]["text"].endswith(text)
        status = self._request("resources/read", uri="cavemem://status")
        assert json.loads(status["result"]["contents"][0]["text"])["current"] == len(self._current)
        reference = {"type": "ref/resource", "uri": "cavemem://memory/{id}"}
        completed = self._request("completion/complete", ref=reference, argument={"name": "id", "value": id})
        assert completed["result"]["completion"]["values"] == [id]

    def _complain(self) -> None:
        assert self._call("recall", query="x", limit=-1)["error"] == "cave_invalid_arguments"
        assert self._call("recall", query=f"nothing{self._count}")["hits"] == []
        assert self._request("no/such")["error"]["code"] == -32601
        line = self._rng.choice([line for line in torture.NOT_JSON.values() if len(line) < 1000])
        assert self._ask(line)["error"]["code"] == -32700


@contextmanager
def _served(transport: str, home: Path) -> Generator[tuple[int, Ask]]:
    """Start a server and return its process and what sends it one message and returns the answer."""
    if transport == "stdio":
        with line_client(home) as lines:
            lines.initialize()
            yield lines.process.pid, lines.ask
    else:
        with remote_server(home, "--log-level", "warning") as server, server.client() as client:
            yield server.process.pid, lambda message: client.post("/mcp", content=message).json()


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_server_does_not_grow_with_what_it_has_answered(
    tmp_path: Path, transport: str, sized: Callable[[int, int], int], rng: random.Random, figures: Counter[str]
) -> None:
    steps, asked = sized(600 if transport == "stdio" else 200, 50_000), 0
    with _served(transport, tmp_path) as (pid, ask):

        def counted(message: bytes) -> Json:
            nonlocal asked
            asked += 1
            return ask(message)

        agent = _Agent(counted, rng)
        for _ in range(steps // 2):
            agent.step()
        warm, seen = _size(pid, tmp_path), list[_Size]()
        for number in range(steps):
            agent.step()
            if number % max(1, steps // SAMPLES) == 0:
                seen.append(_size(pid, tmp_path))
    growth = max(size.rss_kib for size in seen) - warm.rss_kib
    wal = max(size.wal_kib for size in seen)
    print(f"{transport}: {asked} operations, {warm} when warm, {seen[-1]} at the end, +{growth} KiB, WAL {wal} KiB")
    assert growth < RSS_GROWTH_KIB_MAX
    assert max(size.files for size in seen) <= warm.files + FILES_GROWTH_MAX
    assert max(size.threads for size in seen) <= warm.threads + THREADS_GROWTH_MAX
    assert wal < WAL_KIB_MAX
    figures[f"operations of one long run over {transport}"] = asked
    figures[f"KiB that a server grew by in a long run over {transport}"] = growth
    figures[f"KiB of write-ahead log at most in a long run over {transport}"] = wal
