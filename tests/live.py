"""The real thing for black-box tests: server and command-line processes on a folder, and checked tool calls."""

import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from tests.server import answers
from tests.server.answers import CALL_SECONDS_MAX, Era


def environment(home: Path) -> dict[str, str]:
    """Return this process's environment with the memory's home set."""
    return {**os.environ, "CAVEMAN_HOME": str(home)}


def command(*arguments: str) -> list[str]:
    """Return the command line that runs `cavemem` with this interpreter."""
    return [sys.executable, "-m", "cavemem_mcp", *arguments]


def cavemem(home: Path, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run one debug command to its end."""
    return subprocess.run(
        command(*arguments), input=stdin, env=environment(home), capture_output=True, check=False, timeout=60
    )


def start(home: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start one debug command without waiting for it."""
    return subprocess.Popen(
        command(*arguments),
        env=environment(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(processes: Sequence[subprocess.Popen[bytes]]) -> list[tuple[int, bytes, bytes]]:
    """Wait for started commands and return each one's exit code, stdout and stderr."""
    outputs = [process.communicate(timeout=120) for process in processes]
    return [(process.returncode, *output) for process, output in zip(processes, outputs, strict=True)]


@asynccontextmanager
async def stdio_client(home: Path, era: Era = "auto") -> AsyncGenerator[Client]:
    """Start the real stdio server and connect the SDK's client to it."""
    server = StdioServerParameters(command=sys.executable, args=["-m", "cavemem_mcp"], env=environment(home))
    async with Client(server, mode=era, read_timeout_seconds=CALL_SECONDS_MAX) as client:
        yield client


def free_port() -> int:
    """Return a port of this machine that nobody listens on just now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


async def answer(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool and return its structured result, success or error, checked against what the server advertises."""
    return await answers.answer(client, tool, arguments)


async def error(client: Client, tool: str, **arguments: Any) -> str:
    """Call a tool that must fail and return its error id."""
    refused = await answer(client, tool, **arguments)
    assert set(refused) == {"error", "message"}, refused
    return refused["error"]


async def recalled(client: Client, query: str, **arguments: Any) -> list[str]:
    """Return the texts that a query recalls."""
    return [hit["text"] for hit in (await answer(client, "recall", query=query, **arguments))["hits"]]


def bytes_under(folder: Path) -> bytes:
    """Return the bytes of every file under a folder, joined."""
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
