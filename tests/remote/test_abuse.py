"""Requests of somebody who means no good, byte by byte, and a stop while many are being answered."""

import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import httpx2
import pytest

from cavemem_mcp import open_memory
from tests.remote.server import SECONDS_MAX, RemoteServer, TokenFile, bearer, poll, remote_server
from tests.server.processes import call, ping

Shared = tuple[RemoteServer, dict[str, str]]

STOP_SECONDS_MAX: Final = 5
PEAK_KIB_MAX: Final = 500 * 1024
BODY: Final = json.dumps(ping(1)).encode()
CHUNKED: Final = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
PLAIN: Final = b"Host: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: application/json\r\n{authorization}"
LENGTH: Final = b"Content-Length: %d\r\n" % len(BODY)
READ_BYTES: Final = 60_000
"""Of more than that the server leaves something unread when it refuses, and its refusal may get lost."""
GOOD: Final = b"POST /mcp HTTP/1.1\r\n" + PLAIN + LENGTH + b"\r\n" + BODY


def _post(headers: bytes, body: bytes = BODY, *, version: bytes = b"1.1") -> bytes:
    return b"POST /mcp HTTP/" + version + b"\r\n" + PLAIN + headers + b"\r\n" + body


def _get(headers: bytes, *, method: bytes = b"GET", target: bytes = b"/mcp") -> bytes:
    return method + b" " + target + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n{authorization}" + headers + b"\r\n"


END: Final = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


def _statuses(server: RemoteServer, secret: str, data: bytes) -> list[int]:
    """Send bytes, and a request to close the connection if it is still read; return the status of each answer."""
    authorization = f"Authorization: {bearer(secret)['Authorization']}\r\n".encode()
    received = b""
    with (
        suppress(ConnectionError),  # the server may close it before all is sent
        socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS_MAX) as connection,
    ):
        connection.sendall(data.replace(b"{authorization}", authorization) + END)
        while chunk := connection.recv(65536):
            received += chunk
    statuses = [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)]
    return statuses[:-1] if received.endswith(b"\r\nok\n") else statuses


TWO_LENGTHS: Final = {
    "a length and chunks": _post(LENGTH + b"Transfer-Encoding: chunked\r\n", CHUNKED),
    "chunks and a length": _post(b"Transfer-Encoding: chunked\r\n" + LENGTH, CHUNKED),
    "a length that hides the next request": _post(b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", CHUNKED),
    "chunks in HTTP/1.0": _post(b"Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n", CHUNKED, version=b"1.0"),
    "chunks of another kind": _post(b"Transfer-Encoding: xchunked\r\n", CHUNKED),
    "chunks and something else": _post(b"Transfer-Encoding: chunked, identity\r\n", CHUNKED),
    "chunks and something else, in two lines": _post(
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", CHUNKED
    ),
    "chunks with a blank in the name": _post(b"Transfer-Encoding : chunked\r\n", CHUNKED),
    "chunks with a control character": _post(b"Transfer-Encoding: \x0bchunked\r\n", CHUNKED),
    "two lengths": _post(LENGTH + b"Content-Length: 5\r\n"),
    "two lengths in one line": _post(b"Content-Length: 5, 6\r\n"),
    "a length with a sign": _post(b"Content-Length: +%d\r\n" % len(BODY)),
    "a length in hex digits": _post(b"Content-Length: 0x28\r\n"),
    "a length beyond all": _post(b"Content-Length: " + b"9" * 30 + b"\r\n"),
    "a chunk of a negative length": _post(b"Transfer-Encoding: chunked\r\n", b"-1\r\n"),
    "a chunk of a huge length": _post(b"Transfer-Encoding: chunked\r\n", b"f" * 100 + b"\r\n"),
    "a chunk with an endless extension": _post(b"Transfer-Encoding: chunked\r\n", b"1;" + b"a" * 200_000),
}


@pytest.mark.parametrize("kind", TWO_LENGTHS)
def test_a_request_whose_length_is_not_clear_is_refused_and_nothing_after_it_is_read(shared: Shared, kind: str) -> None:
    """A proxy in front may see another length, and take what follows for the request of somebody else."""
    server, secrets = shared
    statuses = _statuses(server, secrets["bob"], TWO_LENGTHS[kind] + GOOD)
    assert statuses == [400] or (statuses == [] and len(TWO_LENGTHS[kind]) > READ_BYTES)
    assert server.post(secrets["bob"], ping(1)).status_code == 200


ODD: Final[dict[str, tuple[bytes, list[int]]]] = {
    "good": (GOOD, [200]),
    "many in one go": (GOOD * 20, [200] * 20),
    "the last of many is none": (GOOD + b"garbage\r\n\r\n", [200, 400]),
    "in chunks": (_post(b"Transfer-Encoding: chunked\r\n", CHUNKED), [200]),
    "HTTP/1.0": (_post(LENGTH, version=b"1.0"), [200]),
    "without a host": (GOOD.replace(b"Host: 127.0.0.1\r\n", b""), [400]),
    "without a host in HTTP/1.0": (_post(LENGTH, version=b"1.0").replace(b"Host: 127.0.0.1\r\n", b""), [421]),
    "two hosts": (GOOD.replace(b"Host:", b"Host: evil.example\r\nHost:"), [400]),
    "a host with a user": (GOOD.replace(b"Host: ", b"Host: evil@"), [421]),
    "a host that is not ASCII": (GOOD.replace(b"Host: 127.0.0.1", b"Host: localhost\xff"), [421]),
    "a host that a proxy claims": (GOOD.replace(b"Host:", b"X-Forwarded-Host: evil.example\r\nHost:"), [200]),
    "an origin that is not ASCII": (_post(LENGTH + b"Origin: \xff\r\n"), [403]),
    "a whole address": (GOOD.replace(b"/mcp", b"http://evil.example/mcp", 1), [404]),
    "a way out": (GOOD.replace(b"/mcp", b"/healthz/../mcp", 1), [404]),
    "a way out of the host check": (GOOD.replace(b"/mcp", b"/healthz/%2e%2e/mcp", 1), [404]),
    "a path with a NUL": (GOOD.replace(b"/mcp", b"/mcp%00", 1), [404]),
    "a path that is not UTF-8": (GOOD.replace(b"/mcp", b"/%ff%fe", 1), [404]),
    "a path with a line end": (GOOD.replace(b"/mcp", b"/mcp/%0d%0aSet-Cookie:a=b", 1), [404]),
    "another server's path": (GOOD.replace(b"/mcp", b"//evil.example/mcp/", 1), [404]),
    "a long query": (GOOD.replace(b"/mcp", b"/mcp?" + b"a" * 50_000, 1), [200]),
    "too long a query": (GOOD.replace(b"/mcp", b"/mcp?" + b"a" * 500_000, 1), [400]),
    "every file": (_get(b"", target=b"/../../etc/passwd"), [404]),
    "a tunnel": (_get(b"", method=b"CONNECT", target=b"evil.example:443"), [404]),
    "options of the server": (_get(b"", method=b"OPTIONS", target=b"*"), [404]),
    "HEAD": (_get(b"", method=b"HEAD"), [405]),
    "OPTIONS": (_get(b"", method=b"OPTIONS"), [405]),
    "TRACE": (_get(b"", method=b"TRACE"), [405]),
    "DELETE": (_get(b"", method=b"DELETE"), [405]),
    "a method of 5000 letters": (_get(b"", method=b"P" * 5000), [405]),
    "a stream": (_get(b"Accept: text/event-stream\r\n"), [405]),
    "a stream to go on with": (_get(b"Accept: text/event-stream\r\nLast-Event-ID: 7\r\n"), [405]),
    "a web socket": (
        _get(b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AA==\r\n"),
        [405],
    ),
    "HTTP/2": (_post(LENGTH + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"), [200]),
    "an expectation": (_post(LENGTH + b"Expect: 100-continue\r\n"), [100, 200]),
    "a second secret": (_post(LENGTH + b"Authorization: Bearer x\r\n"), [200]),
    "a session id that is not ASCII": (_post(LENGTH + b"Mcp-Session-Id: \xff\r\n"), [200]),
    "a version that is not ASCII": (_post(LENGTH + b"MCP-Protocol-Version: \xff\r\n"), [400]),
    "a version of 50 000 digits": (_post(LENGTH + b"MCP-Protocol-Version: " + b"2" * 50_000 + b"\r\n"), [400]),
    "a method in a header that is not ASCII": (
        _post(LENGTH + b"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: \xff\r\n"),
        [400],
    ),
    "5000 kinds of answer": (GOOD.replace(b"application/json\r\n{", b"a/b;q=0.1," * 5000 + b"\r\n{"), [406]),
    "a forwarded address that is none": (_post(LENGTH + b"X-Forwarded-For: \xff\r\nForwarded: for=_\r\n"), [200]),
    "a trace that is none": (_post(LENGTH + b"traceparent: \xff\r\nbaggage: " + b"a=b," * 5000 + b"\r\n"), [200]),
}


@pytest.mark.parametrize("kind", ODD)
def test_an_odd_request_is_answered_as_what_it_is(shared: Shared, kind: str) -> None:
    server, secrets = shared
    data, expected = ODD[kind]
    statuses = _statuses(server, secrets["bob"], data)
    assert statuses == expected or (statuses == [] and len(data) > READ_BYTES)
    assert server.post(secrets["bob"], ping(1)).status_code == 200


SECRETS: Final[dict[str, tuple[bytes, bytes, int]]] = {
    "none": (b"/mcp", b"", 401),
    "in the query": (b"/mcp?access_token={secret}&token={secret}", b"", 401),
    "in a cookie": (b"/mcp", b"Cookie: Authorization=Bearer {secret}\r\n", 401),
    "under another name": (b"/mcp", b"X-Api-Key: {secret}\r\nProxy-Authorization: Bearer {secret}\r\n", 401),
    "with a NUL": (b"/mcp", b"Authorization: Bearer {secret}\0\r\n", 400),
    "with a letter that is not ASCII": (b"/mcp", b"Authorization: Bearer {secret}\xff\r\n", 401),
    "with a blank inside": (b"/mcp", b"Authorization: Bearer  {secret}\r\n", 401),
    "after a false one": (b"/mcp", b"Authorization: Bearer x\r\nAuthorization: Bearer {secret}\r\n", 401),
    "of 60 000 letters": (b"/mcp", b"Authorization: Bearer " + b"{secret}" * 1200 + b"\r\n", 401),
    "as a name and a password": (b"/mcp", b"Authorization: Basic Ym9iOmJvYg==\r\n", 401),
}


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_admits_nobody_from_anywhere_but_its_place(shared: Shared, kind: str) -> None:
    server, secrets = shared
    target, headers, status = SECRETS[kind]
    data = GOOD.replace(b"/mcp", target, 1).replace(b"{authorization}", headers)
    statuses = _statuses(server, "", data.replace(b"{secret}", secrets["bob"].encode()))
    assert statuses == [status]
    assert secrets["bob"] not in server.errors()


def test_clients_that_leave_in_the_middle_of_a_body_are_no_defects_of_the_server(
    server: RemoteServer, tokens: TokenFile
) -> None:
    secret = tokens.secrets["alice"]
    authorization = f"Authorization: {bearer(secret)['Authorization']}\r\n".encode()
    for data in (_post(b"Content-Length: 99\r\n"), _post(b"Transfer-Encoding: chunked\r\n", b"5\r\n{")):
        for end in (b"", b"zz\r\n"):
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(data.replace(b"{authorization}", authorization) + end)
    poll(lambda: len(server.lines()) == 4)
    assert server.post(secret, ping(1)).status_code == 200
    assert 'File "' not in server.errors()
    assert " ERROR " not in server.errors()


def test_large_requests_of_many_small_parts_do_not_fill_the_servers_memory(
    server: RemoteServer, tokens: TokenFile
) -> None:
    """Each of them takes 50 MB when it is parsed, and half of those that may be answered at once are sent."""
    parts = "[" + "[]," * 660_000 + "1]"
    body = json.dumps(call("recall", {"query": "here"})).replace('"here"', parts)
    server.tool(tokens.secrets["alice"], "remember", text="first")

    def send(name: str) -> int:
        with server.client(tokens.secrets[name]) as client:
            return client.post("/mcp", content=body).status_code

    with ThreadPoolExecutor(16) as callers:
        assert set(callers.map(send, ["alice", "bob"] * 8)) == {200}
    assert _peak_kib(server.process.pid) < PEAK_KIB_MAX


def _peak_kib(pid: int) -> int:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1])


def _write_until_the_end(server: RemoteServer, secret: str, number: int, acknowledged: list[str]) -> None:
    with server.client(secret) as client, suppress(httpx2.TransportError):
        for count in range(10_000):
            text = f"writer{number} stored fact{count} at the quay"
            answered = client.post("/mcp", content=json.dumps(call("remember", {"text": text})))
            if answered.status_code == 429:
                continue
            assert answered.status_code == 200
            structured = answered.json()["result"]["structuredContent"]
            if "error" in structured:
                assert "shutting down" in structured["message"]
            else:
                acknowledged.append(structured["id"])


def test_a_stop_under_load_keeps_what_it_acknowledged_and_ends_in_time(tmp_path: Path, tokens: TokenFile) -> None:
    acknowledged: dict[str, list[str]] = {"alice": [], "bob": []}
    with (
        remote_server(tmp_path / "home", "--auth-tokens", str(tokens.path)) as server,
        ThreadPoolExecutor(8) as callers,
    ):
        writers = [
            callers.submit(_write_until_the_end, server, tokens.secrets[name], number, acknowledged[name])
            for number in range(4)
            for name in acknowledged
        ]
        poll(lambda: all(len(ids) > 30 for ids in acknowledged.values()))
        server.process.terminate()
        assert server.process.wait(STOP_SECONDS_MAX) == 143
        for writer in writers:
            writer.result()
        assert 'File "' not in server.errors()
    for store, ids in acknowledged.items():
        with closing(open_memory(tmp_path / "home" / "stores" / store / "mem")) as memory:
            assert all(memory.history(id).history for id in ids)
