"""Load and abuse, bounded: many clients at once, and clients that mean no good while others work."""

import asyncio
import json
import random
import socket
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import httpx2
import pytest

from tests.remote.server import HEADERS, SECONDS_MAX, TRUST, RemoteServer, TokenFile, bearer, poll, remote_server
from tests.server.processes import call, ping

CLIENTS: Final = 64
LOAD_SECONDS: Final = 10
SLOW_CONNECTIONS: Final = 200

Shared = tuple[RemoteServer, dict[str, str]]


@pytest.fixture
def loaded(tmp_path: Path) -> Generator[tuple[RemoteServer, TokenFile]]:
    tokens = TokenFile(tmp_path / "tokens.toml")
    for number in range(4):
        tokens.add(f"agent-{number}")
    with remote_server(tmp_path / "home", "--auth-tokens", str(tokens.path), "--header-timeout", "5") as server:
        yield server, tokens


async def test_many_clients_that_read_and_write_lose_nothing_and_meet_no_error_but_429(
    loaded: tuple[RemoteServer, TokenFile],
) -> None:
    server, tokens = loaded
    secrets = list(tokens.secrets.values())
    written: dict[str, set[str]] = {secret: set() for secret in secrets}
    statuses: dict[int, int] = {}
    ends = time.monotonic() + LOAD_SECONDS

    async def work(number: int) -> None:
        choice = random.Random(number)  # the same load each time
        secret = secrets[number % len(secrets)]
        async with httpx2.AsyncClient(
            headers=HEADERS | bearer(secret), timeout=60, verify=TRUST, trust_env=False
        ) as client:
            count = 0
            while time.monotonic() < ends:
                is_write = choice.random() < 0.5
                text = f"Client{number} wrote fact{count} here"
                message = call("remember", {"text": text}) if is_write else call("recall", {"query": f"client{number}"})
                answered = await client.post(server.url, content=json.dumps(message))
                statuses[answered.status_code] = statuses.get(answered.status_code, 0) + 1
                if answered.status_code == 429:
                    await asyncio.sleep(choice.random() * int(answered.headers["retry-after"]))
                    continue
                structured = answered.json()["result"]["structuredContent"]
                assert "error" not in structured, structured
                if is_write:
                    written[secret].add(text)
                    count += 1

    async with asyncio.TaskGroup() as tasks:
        for number in range(CLIENTS):
            tasks.create_task(work(number))
    assert set(statuses) <= {200, 429}
    assert statuses[200] > CLIENTS
    for secret, texts in written.items():
        found = set[str]()
        with server.client(secret) as client:
            for number in range(CLIENTS):
                query = {"query": f"client{number}", "limit": 1000, "token_budget": 0}
                while (answered := client.post("/mcp", content=json.dumps(call("recall", query)))).status_code == 429:
                    threading.Event().wait(0.1)
                found |= {hit["text"] for hit in answered.json()["result"]["structuredContent"]["hits"]}
        assert texts <= found, "lost"


def test_connections_that_send_a_byte_a_second_do_not_keep_others_from_working(
    loaded: tuple[RemoteServer, TokenFile],
) -> None:
    server, tokens = loaded
    secret = tokens.secrets["agent-0"]
    stop = threading.Event()
    head = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Padding: " + b"x" * 1000

    def drip(connections: list[socket.socket]) -> None:
        for byte in head:
            for connection in connections:
                try:
                    connection.sendall(bytes([byte]))
                except OSError:
                    connections.remove(connection)  # the server has had enough of it
                    break
            if stop.wait(1):
                return

    with ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(SLOW_CONNECTIONS)
        ]
        slow = threading.Thread(target=drip, args=(list(connections),))
        slow.start()
        try:
            for number in range(50):
                assert "error" not in server.tool(secret, "remember", text=f"Fact number{number} while others drip")
            assert server.recalled(secret, "number7") == ["Fact number7 while others drip"]
            for connection in connections:
                connection.settimeout(SECONDS_MAX)
                assert _ends(connection)
        finally:
            stop.set()
            slow.join()


def _ends(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


DEEP: Final = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"cavemem_recall","arguments":{"query":'
REQUESTS: Final[dict[str, tuple[bytes, dict[str, str], set[int]]]] = {
    "truncated": (b'{"jsonrpc":"2.0","id":1,"method":"pi', {}, {400}),
    "empty": (b"", {}, {400}),
    "not UTF-8": (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', {}, {400}),
    "deeply nested": (DEEP + b"[" * 100_000 + b"]" * 100_000 + b"}}}", {}, {400}),
    "nested just enough": (DEEP + b"[" * 150 + b"]" * 150 + b"}}}", {}, {200, 400}),
    "oversized": (b" " * (2 * 1024 * 1024 + 1), {}, {413}),
    "wrong content type": (json.dumps(ping(1)).encode(), {"Content-Type": "text/plain"}, {400, 415}),
    "form": (b"a=b", {"Content-Type": "application/x-www-form-urlencoded"}, {400, 415}),
    "nothing accepted": (json.dumps(ping(1)).encode(), {"Accept": "text/html"}, {406}),
    "unknown version": (json.dumps(ping(1)).encode(), {"MCP-Protocol-Version": "1999-01-01"}, {400}),
    "compressed": (b"\x1f\x8b\x08\x00", {"Content-Encoding": "gzip"}, {400, 415}),
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_senseless_request_is_refused_and_harms_nobody(shared: Shared, kind: str) -> None:
    server, secrets = shared
    body, headers, statuses = REQUESTS[kind]
    for version in ({}, {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "ping"}):
        with server.client(secrets["bob"]) as client:
            answered = client.post("/mcp", content=body, headers=version | headers)
        assert answered.status_code in statuses, answered.text
    assert server.post(secrets["bob"], ping(1)).status_code == 200


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "TRACE", "HEAD", "PROPFIND"])
def test_another_method_is_refused(shared: Shared, method: str) -> None:
    server, secrets = shared
    with server.client(secrets["bob"]) as client:
        assert client.request(method, "/mcp").status_code in {400, 404, 405}


def test_of_duplicate_keys_one_meaning_is_taken(shared: Shared) -> None:
    """The same in every part of the server: what is checked is what is done."""
    server, secrets = shared
    body = '{"jsonrpc":"2.0","id":1,"method":"tools/call","method":"ping"}'
    with server.client(secrets["bob"]) as client:
        assert client.post("/mcp", content=body).json()["result"] == {}
    reader = (
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"cavemem_recall","name":"cavemem_remember",'
        '"arguments":{"text":"x"}}}'
    )
    with server.client(secrets["carol"]) as client:
        answered = client.post("/mcp", content=reader).json()
    assert answered["result"]["structuredContent"]["error"] == "cave_forbidden"


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nHost: 127.0.0.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\r\n" * 40_000,
        b"G" * 200_000,
    ],
)
def test_what_is_no_request_is_refused_and_harms_nobody(shared: Shared, data: bytes) -> None:
    server, secrets = shared
    with socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS_MAX) as connection:
        try:
            connection.sendall(data)
            received = connection.recv(65536)
        except ConnectionError:
            received = b""
    assert received == b"" or received.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5"))
    assert server.post(secrets["bob"], ping(1)).status_code == 200


@pytest.mark.parametrize(("count", "length"), [(1, 2_000_000), (20_000, 100), (1_000_000, 1)])
def test_a_flood_of_headers_is_refused_and_harms_nobody(shared: Shared, count: int, length: int) -> None:
    server, secrets = shared
    with socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS_MAX) as connection:
        try:
            connection.sendall(
                b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n" + (b"X: " + b"x" * length + b"\r\n") * count
            )
            received = connection.recv(65536)
        except ConnectionError:
            received = b""
    assert received == b"" or received.startswith(b"HTTP/1.1 4")
    assert server.post(secrets["bob"], ping(1)).status_code == 200


def test_guessing_tokens_admits_nobody_and_harms_nobody(shared: Shared) -> None:
    server, secrets = shared
    near = [secrets["bob"][:-1] + letter for letter in "abcdefgh" if not secrets["bob"].endswith(letter)]
    with server.client() as client:
        for number, guess in enumerate([*near, *(f"cavemem_{number}" for number in range(200))]):
            answered = client.post("/mcp", content=json.dumps(ping(number)), headers=bearer(guess))
            assert answered.status_code == 401
    assert server.post(secrets["bob"], ping(1)).status_code == 200


def test_clients_that_go_away_in_the_middle_leave_nothing_behind(shared: Shared) -> None:
    server, secrets = shared
    body = json.dumps(call("recall", {"query": "anything"})).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {bearer(secrets['bob'])['Authorization']}\r\n"
        f"Content-Type: application/json\r\nAccept: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    request = head + body
    for end in [len(head) // 2, len(head), len(head) + 5, len(request)] * 40:
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(request[:end])
    poll(lambda: server.post(secrets["bob"], ping(1)).status_code == 200)  # they took all places that bob may have
    for _ in range(5):
        assert server.post(secrets["bob"], ping(1)).status_code == 200
