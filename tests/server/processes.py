"""Real server processes for tests that need bytes, signals and exit codes: over stdio line by line, and over HTTP."""

import http.client
import json
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, cast

import apsw

from cavemem_mcp import open_memory
from tests.live import command, environment

ANSWER_SECONDS_MAX: Final = 20
END_SECONDS_MAX: Final = 5
"""The contract's: whatever ends a server, the process is gone by then."""

AT_ONCE_SECONDS_MAX: Final = 3
"""Long for a process that ends at once, and short of when one would end that waits for what hangs."""

Json = dict[str, Any]


FACT: Final = "Webshop: deploys on Tuesday"


def call(tool: str, arguments: object, *, id: object = 1) -> Json:
    """Return a tool call, as a client of the handshake era sends it."""
    return {
        "jsonrpc": "2.0",
        "id": id,
        "method": "tools/call",
        "params": {"name": f"cavemem_{tool}", "arguments": arguments},
    }


def ping(id: object) -> Json:
    return {"jsonrpc": "2.0", "id": id, "method": "ping"}


INITIALIZE: Final[Json] = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    },
}


class LineClient:
    """A client that sends and receives raw lines, over the pipes of a server that it started."""

    def __init__(self, home: Path, started: list[str] | None = None, *, pass_fds: tuple[int, ...] = ()) -> None:
        self.errors = home / "stderr"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                started or command(),
                env=environment(home),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                pass_fds=pass_fds,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self._received = bytearray()

    def send(self, *messages: object) -> None:
        """Send each message as a line; bytes as they are."""
        for message in messages:
            line = message if isinstance(message, bytes) else json.dumps(message).encode()
            self.send_bytes(line + b"\n")

    def send_bytes(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self.stdin.write(rest) or 0 :]

    def is_refused(self) -> bool:
        """Return whether the server has stopped reading."""
        try:
            self.send(b"")
        except BrokenPipeError:
            return True
        return False

    def receive(self) -> Json:
        """Return the next message; fail when none comes."""
        while b"\n" not in self._received:
            readable, _, _ = select.select([self.stdout], [], [], ANSWER_SECONDS_MAX)
            assert readable, f"no answer; stderr: {self.errors.read_text()}"
            chunk = self.stdout.read(65536)
            assert chunk, f"the server has closed stdout; stderr: {self.errors.read_text()}"
            self._received += chunk
        line, _, rest = bytes(self._received).partition(b"\n")
        self._received = bytearray(rest)
        return json.loads(line)

    def ask(self, message: object) -> Json:
        self.send(message)
        return self.receive()

    def initialize(self) -> None:
        assert "result" in self.ask(INITIALIZE)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def rest(self) -> list[Json]:
        """Return everything that comes until stdout ends; fail on a line that is not a message."""
        while True:
            readable, _, _ = select.select([self.stdout], [], [], ANSWER_SECONDS_MAX)
            assert readable, "stdout does not end"
            chunk = self.stdout.read(65536)
            if not chunk:
                lines = bytes(self._received).splitlines()
                self._received.clear()
                return [json.loads(line) for line in lines]
            self._received += chunk

    def exit_code(self) -> int:
        """Wait for the process, no longer than the contract allows."""
        return self.process.wait(END_SECONDS_MAX)


@contextmanager
def line_client(home: Path, started: list[str] | None = None) -> Generator[LineClient]:
    """Start a server, by a command line of its own if it must, and leave none behind."""
    client = LineClient(home, started)
    try:
        yield client
    finally:
        client.process.kill()
        client.process.wait()
        client.stdin.close()
        client.stdout.close()


class HttpServer:
    """A server that listens on a free port."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            command("mcp", "--transport", "streamable-http", "--port", "0", *arguments),
            env=environment(home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stderr is not None
        self.errors = b""
        for line in self.process.stderr:
            self.errors += line
            if b"http://" in line:
                break
        else:
            raise AssertionError(f"the server ended before it listened: {self.errors.decode()}")
        self.url = self.errors[self.errors.index(b"http://") :].split()[0].decode()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.url.split("/")[2], timeout=ANSWER_SECONDS_MAX)

    def post(self, body: bytes, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        """Send one request and return the status and the body of the answer."""
        with closing(self.send(body, headers)) as connection:
            response = connection.getresponse()
            return response.status, response.read()

    def send(self, body: bytes, headers: dict[str, str] | None = None) -> http.client.HTTPConnection:
        """Send one request and do not wait for the answer."""
        connection = self.connect()
        plain = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        connection.request("POST", "/mcp", body, {**plain, **(headers or {})})
        return connection

    def is_refused(self) -> bool:
        """Return whether the server has stopped listening."""
        connection = self.connect()
        try:
            connection.connect()
        except ConnectionRefusedError:
            return True
        finally:
            connection.close()
        return False

    def ask(self, message: object) -> Json:
        status, body = self.post(json.dumps(message).encode())
        assert status == 200, body
        return cast("Json", json.loads(body))

    def exit_code(self) -> int:
        return self.process.wait(END_SECONDS_MAX)


@contextmanager
def http_server(home: Path, *arguments: str) -> Generator[HttpServer]:
    """Start a server and leave none behind."""
    server = HttpServer(home, *arguments)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.communicate()


@contextmanager
def write_lock(home: Path) -> Generator[None]:
    """Hold the store's write lock, so that every write of a server waits."""
    with closing(apsw.Connection(str(home / "mem" / "mem.db"))) as connection:
        connection.set_busy_timeout(10_000)  # writes that waited may still be under way
        connection.execute("BEGIN IMMEDIATE")
        yield


@contextmanager
def old_snapshot(folder: Path) -> Generator[None]:
    """Read a store for so long that what is forgotten meanwhile stays in its files."""
    with closing(apsw.Connection(str(folder / "mem.db"))) as connection:
        connection.execute("BEGIN; SELECT count(*) FROM memories")
        yield


def recalled(home: Path, query: str) -> list[str]:
    """Return what a new process would recall from the store that a server left."""
    with closing(open_memory(home / "mem")) as memory:
        return [hit.text for hit in memory.recall(query).hits]


def poll(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; fail when it does not come to hold."""
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, "the condition does not come to hold"
        threading.Event().wait(0.01)


def end_by_two_signals(process: subprocess.Popen[bytes], *, is_ending: Callable[[], bool]) -> None:
    """Interrupt a process and, as soon as that shows, terminate it: only the second signal makes its exit code 143."""
    process.send_signal(signal.SIGINT)
    poll(is_ending)
    process.send_signal(signal.SIGTERM)
    assert process.wait(AT_ONCE_SECONDS_MAX) == 143


SIGNALS: Final = [(signal.SIGTERM, 143), (signal.SIGINT, 130)]
