"""The real server over HTTP: both eras at one address, what is refused, and how it ends."""

import json
import signal
import socket
import subprocess
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from mcp import Client

from cavemem_mcp import InvalidArgumentsError, open_memory
from cavemem_mcp.http import listener, serve_http
from cavemem_mcp.model import memory_id
from cavemem_mcp.settings import HttpSettings, http_settings
from tests.server.answers import Era, answer, refusal
from tests.server.processes import (
    FACT,
    SIGNALS,
    HttpServer,
    call,
    command,
    end_by_two_signals,
    environment,
    http_server,
    ping,
    recalled,
    write_lock,
)


async def test_the_sdks_client_gets_results_and_errors(shared_server: HttpServer, era: Era) -> None:
    with anyio.fail_after(20):
        async with Client(shared_server.url, mode=era) as client:
            await answer(client, "remember", {"text": FACT})
            found = await answer(client, "recall", {"query": "webshop"})
            error, _ = await refusal(client, "recall", {"query": "webshop", "limit": -1})
    assert [hit["text"] for hit in found["hits"]] == [FACT]
    assert error == "cave_invalid_arguments"


async def test_clients_of_both_eras_share_one_memory(shared_server: HttpServer) -> None:
    with anyio.fail_after(20):
        async with Client(shared_server.url, mode="auto") as modern, Client(shared_server.url, mode="legacy") as legacy:
            await answer(modern, "remember", {"text": FACT})
            found = await answer(legacy, "recall", {"query": "webshop"})
    assert [hit["text"] for hit in found["hits"]] == [FACT]


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}", "localhost"])
def test_a_local_host_name_is_served(shared_server: HttpServer, host: str) -> None:
    port = shared_server.url.rpartition(":")[2].partition("/")[0]
    status, _ = shared_server.post(json.dumps(ping(1)).encode(), {"Host": host.format(port=port)})
    assert status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example:80", "localhost.evil:1"])
def test_another_host_name_is_refused(shared_server: HttpServer, host: str) -> None:
    assert shared_server.post(json.dumps(ping(1)).encode(), {"Host": host})[0] == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://localhost.evil:1"])
def test_another_origin_is_refused(shared_server: HttpServer, origin: str) -> None:
    assert shared_server.post(json.dumps(ping(1)).encode(), {"Origin": origin})[0] == 403


def test_a_body_above_the_limit_is_refused_and_the_largest_memory_is_not(shared_server: HttpServer) -> None:
    assert shared_server.post(b" " * (HttpSettings.max_body_bytes + 1))[0] == 413
    request = json.dumps(call("remember", {"text": "here"})).replace("here", "\\u0041" * 262_144)
    status, body = shared_server.post(request.encode())
    assert status == 200
    assert json.loads(body)["result"]["structuredContent"]["id"] == memory_id("A" * 262_144)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"MCP-Protocol-Version": "2025-06-18"},
        {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "cavemem_remember"},
    ],
)
def test_half_a_surrogate_pair_is_refused_by_argument_in_every_era(
    shared_server: HttpServer, headers: dict[str, str]
) -> None:
    request = call("remember", {"text": "cut \ud83d"}, id=7)
    request["params"]["_meta"] = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    status, body = shared_server.post(json.dumps(request).encode(), headers)
    answered = json.loads(body)
    assert status == 200
    assert answered["id"] == 7
    assert answered["result"]["isError"] is True
    assert answered["result"]["structuredContent"]["error"] == "cave_invalid_arguments"
    assert answered["result"]["structuredContent"]["message"].startswith("text: holds half of a surrogate pair")


@pytest.mark.parametrize(
    "body",
    [b"hello", b"[]", b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}', b'{"n":' + b"9" * 5000 + b"}", b"[" * 10_000],
)
def test_what_is_no_message_is_a_bad_request_and_the_server_lives_on(shared_server: HttpServer, body: bytes) -> None:
    assert shared_server.post(body)[0] == 400
    assert shared_server.ask(ping(1))["result"] == {}


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "0", "192.0.2.1", "2001:db8::1", "no-such-name.invalid", "x" * 300]
)  # to be refused
def test_an_address_that_is_not_loopback_is_refused(folder: Path, host: str) -> None:
    with pytest.raises(InvalidArgumentsError, match=r"^host: .* use 127\.0\.0\.1"):
        serve_http(folder, open_memory, HttpSettings(host=host, port=0))
    assert not folder.exists()


def test_the_command_line_says_what_to_do_instead_of_serving_every_address(tmp_path: Path) -> None:
    ended = subprocess.run(
        command("mcp", "--transport", "streamable-http", "--port", "0", "--host", "0.0.0.0"),  # to be refused
        env=environment(tmp_path),
        capture_output=True,
        check=False,
        timeout=20,
    )
    assert ended.returncode == 1
    assert ended.stdout == b""
    assert b"use 127.0.0.1" in ended.stderr


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = subprocess.run(
            command("mcp", "--transport", "streamable-http", "--port", str(taken.getsockname()[1])),
            env=environment(tmp_path),
            capture_output=True,
            check=False,
            timeout=20,
        )
    assert ended.returncode == 1
    assert b"choose another port" in ended.stderr
    assert b"Traceback" not in ended.stderr


@pytest.mark.parametrize("host", ["localhost", "127.0.0.2"])
def test_every_loopback_name_can_be_served(tmp_path: Path, host: str) -> None:
    with http_server(tmp_path, "--host", host) as server:
        assert server.ask(ping(1))["result"] == {}


@pytest.mark.parametrize(("number", "exit_code"), SIGNALS)
def test_a_signal_ends_the_server_while_idle_connections_are_open(
    server: HttpServer, number: signal.Signals, exit_code: int
) -> None:
    idle, silent = server.send(json.dumps(ping(1)).encode()), server.connect()
    assert idle.getresponse().read()
    silent.connect()
    server.process.send_signal(number)
    assert server.exit_code() == exit_code
    assert server.process.stdout is not None
    assert server.process.stdout.read() == b""
    idle.close()
    silent.close()


def test_a_signal_lets_a_write_in_progress_finish(server: HttpServer, tmp_path: Path) -> None:
    server.ask(call("remember", {"text": "first"}))
    with write_lock(tmp_path):
        late = server.send(json.dumps(call("remember", {"text": FACT})).encode())
        server.ask(ping(1))
        server.process.terminate()
    with closing(late):
        answered = json.loads(late.getresponse().read())
    assert answered["result"]["structuredContent"]["id"] == memory_id(FACT)
    assert server.exit_code() == 143
    assert recalled(tmp_path, "webshop") == [FACT]


def test_a_second_signal_ends_the_server_at_once(server: HttpServer, tmp_path: Path) -> None:
    server.ask(call("remember", {"text": "first"}))
    with write_lock(tmp_path), closing(server.send(json.dumps(call("remember", {"text": FACT})).encode())):
        server.ask(ping(1))
        end_by_two_signals(server.process, is_ending=server.is_refused)
    assert recalled(tmp_path, "webshop") == []


def test_answers_are_sent_without_delay() -> None:
    with closing(listener(http_settings({"--port": "0"}, {}))) as listening:
        assert listening.proto == socket.IPPROTO_TCP, "asyncio sets TCP_NODELAY on no other"
