"""Round trips of recall: `python -m tests.bench.bench_server [--size N] [--calls N]`.

Beside recall over N memories runs the same tool of the same server, over the same transport, on a memory that does
nothing. Over stdio, several clients are so many requests in flight; over HTTP, so many connections.
"""

import argparse
import asyncio
import itertools
import json
import os
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from tests.bench import harness
from tests.bench.bench_recall import Corpus, filled_store

ROOT: Final = Path(__file__).parent.parent.parent
WAYS: Final = ("no-op", "recall")
CLIENTS: Final = (1, 32)
FAMILY: Final = "3 mid-frequency terms"
SERVERS: Final = {
    ("stdio", "recall"): ("cavemem_mcp",),
    ("stdio", "no-op"): ("tests.bench.servers", "stdio"),
    ("HTTP", "recall"): ("cavemem_mcp", "mcp", "--transport", "streamable-http", "--port", "0"),
    ("HTTP", "no-op"): ("tests.bench.servers", "http"),
}
INITIALIZE: Final = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}

Ask = Callable[[str], Coroutine[Any, Any, Any]]
"""Sends a query and returns the hits of the answer."""


def _request(id: int, method: str, params: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()


def _recall(id: int, query: str) -> bytes:
    return _request(id, "tools/call", {"name": "cavemem_recall", "arguments": {"query": query}})


@asynccontextmanager
async def _server(transport: str, way: str, home: Path) -> AsyncGenerator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *SERVERS[transport, way],
        cwd=ROOT,
        env={**os.environ, "CAVEMAN_HOME": str(home)},
        stdin=PIPE if transport == "stdio" else DEVNULL,
        stdout=PIPE if transport == "stdio" else DEVNULL,
        stderr=DEVNULL if transport == "stdio" else PIPE,
        limit=2**24,
    )
    try:
        yield process
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def stdio(way: str, home: Path) -> AsyncGenerator[Sequence[Ask]]:
    """Yield one client of a server over stdio; it may ask again before it is answered."""
    async with _server("stdio", way, home) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        writer, reader = process.stdin, process.stdout
        ids = itertools.count(1)
        waiting: dict[int, asyncio.Future[Any]] = {}

        async def receive() -> None:
            while line := await reader.readline():
                message = json.loads(line)
                waiting.pop(message["id"]).set_result(message["result"])

        def send(request: Callable[[int], bytes]) -> asyncio.Future[Any]:
            id = next(ids)
            waiting[id] = asyncio.get_running_loop().create_future()
            writer.write(request(id) + b"\n")
            return waiting[id]

        async def ask(query: str) -> object:
            return (await send(lambda number: _recall(number, query)))["structuredContent"]["hits"]

        receiving = asyncio.create_task(receive())
        await send(lambda number: _request(number, "initialize", INITIALIZE))
        yield [ask] * max(CLIENTS)
        receiving.cancel()


@asynccontextmanager
async def http(way: str, home: Path) -> AsyncGenerator[Sequence[Ask]]:
    """Yield clients of a server over HTTP, each with a connection of its own that stays open."""
    async with _server("HTTP", way, home) as process, AsyncExitStack() as stack:
        assert process.stderr is not None
        line = b""
        while b"http://" not in line:
            line = await process.stderr.readline()
            assert line, "the server ended before it listened"
        address = line.partition(b"http://")[2].partition(b"/")[0].decode()
        yield [_connection(address, stack) for _ in range(max(CLIENTS))]


def _connection(address: str, stack: AsyncExitStack) -> Ask:
    host, _, port = address.partition(":")
    opened: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(query: str) -> object:
        if not opened:  # not before it is used: silent connections are closed
            opened.append(await asyncio.open_connection(host, int(port)))
            stack.callback(opened[0][1].close)
        reader, writer = opened[0]
        body = _recall(1, query)
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        fields = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(fields.partition(b"content-length:")[2].split()[0])
        return json.loads(await reader.readexactly(length))["result"]["structuredContent"]["hits"]

    return ask


async def timed(clients: Sequence[Ask], queries: Sequence[str]) -> list[float]:
    """Let the clients ask all queries, each its share one after another; return the seconds of each round trip."""
    seconds: list[float] = []

    async def work(ask: Ask, share: Sequence[str]) -> None:
        for query in share:
            begun = time.perf_counter()
            await ask(query)
            seconds.append(time.perf_counter() - begun)

    await asyncio.gather(*(work(ask, queries[number :: len(clients)]) for number, ask in enumerate(clients)))
    return seconds


async def measured(home: Path, queries: Sequence[str], *, rounds: int, title: str) -> tuple[harness.Table, str]:
    """Let the ways take turns on each transport; return the table, and a hash of what was recalled on each."""
    table = harness.Table(title=title, ways=WAYS)
    results: list[object] = []
    for name, transport in (("stdio", stdio), ("HTTP", http)):
        async with transport("no-op", home) as no_op, transport("recall", home) as recall:
            ways = dict(zip(WAYS, (no_op, recall), strict=True))
            for count in CLIENTS:
                seconds: dict[str, list[float]] = {way: [] for way in WAYS}
                for number in range(rounds + 1):
                    for way, clients in ways.items():
                        took = await timed(clients[:count], queries)
                        seconds[way] += took if number else []
                table.add(f"{name}, {count} {'client' if count == 1 else 'clients'}", seconds)
            found = [await recall[0](query) for query in queries]
            assert any(found), "nothing is recalled"
            results += found
    return table, harness.result_hash(results)


def run(size: int, *, calls: int, rounds: int) -> tuple[harness.Table, str]:
    """Measure one size of store; return its table and the hash of what was recalled."""
    corpus = Corpus(size)
    with tempfile.TemporaryDirectory() as name:
        filled_store(Path(name) / "mem", corpus.texts).close()
        queries = corpus.queries(calls)[FAMILY]
        title = f"recall of {FAMILY} among {size:,} memories, round trip, ms p50 (p95)"
        return asyncio.run(measured(Path(name), queries, rounds=rounds, title=title))


def main() -> None:
    """Print the machine, the table and the hash."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--calls", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(harness.machine())
    table, results = run(arguments.size, calls=arguments.calls, rounds=arguments.rounds)
    print(f"\n{table}\n\nresults {results}")


if __name__ == "__main__":
    main()
