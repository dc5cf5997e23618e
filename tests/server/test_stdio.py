"""The real server over stdio: odd input, purity of stdout, and every way in which it ends."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from cavemem_mcp.model import memory_id
from cavemem_mcp.transport import IN_FLIGHT_MAX
from tests.server.answers import Era, answer, refusal
from tests.server.processes import (
    END_SECONDS_MAX,
    FACT,
    INITIALIZE,
    SIGNALS,
    LineClient,
    call,
    command,
    end_by_two_signals,
    environment,
    line_client,
    old_snapshot,
    ping,
    poll,
    recalled,
    write_lock,
)

RSS_GROWTH_KIB_MAX = 64 * 1024


def _structured(message: dict[str, Any]) -> dict[str, Any]:
    return message["result"]["structuredContent"]


async def test_the_sdks_client_gets_results_and_errors(tmp_path: Path, era: Era) -> None:
    server = StdioServerParameters(command=command()[0], args=command()[1:], env=environment(tmp_path))
    with anyio.fail_after(20):
        async with Client(server, mode=era) as client:
            await answer(client, "remember", {"text": FACT})
            found = await answer(client, "recall", {"query": "webshop"})
            error, _ = await refusal(client, "recall", {"query": "webshop", "limit": -1})
    assert [hit["text"] for hit in found["hits"]] == [FACT]
    assert error == "cave_invalid_arguments"


def test_odd_lines_are_answered_and_the_server_lives_on(shared_lines: LineClient) -> None:
    for line, code in (
        (b"hello", -32700),
        (b"[]", -32600),
        (b"[" * 100_000, -32700),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b"\x00\xff", -32700),
    ):
        refused = shared_lines.ask(line)
        assert refused["id"] is None
        assert refused["error"]["code"] == code
    shared_lines.send(b"", b"  \r", b'{"jsonrpc":"2.0","id":9,"result":{}}', b'{"jsonrpc":"2.0","method":"no/such"}')
    assert shared_lines.ask(ping("still here")) == {"jsonrpc": "2.0", "id": "still here", "result": {}}


@pytest.mark.parametrize(
    ("tool", "name", "value"),
    [
        ("remember", "text", r'"cut \ud83d"'),
        ("recall", "query", r'"\udc00"'),
        ("recall", "limit", "1e400"),
        ("recall", "limit", "NaN"),
        ("recall", "token_budget", "-Infinity"),
        ("recall", "token_budget", "123456789012345678901234567890"),
    ],
)
def test_a_value_that_few_parsers_accept_is_refused_by_name(
    shared_lines: LineClient, tool: str, name: str, value: str
) -> None:
    others = "" if name in {"text", "query"} else '"query":"x",'
    arguments = f'{{{others}"{name}":{value}}}'
    request = json.dumps(call(tool, "here", id="\ud800")).replace('"here"', arguments)
    refused = shared_lines.ask(request.encode())
    assert refused["id"] == "\ud800"
    assert _structured(refused)["error"] == "cave_invalid_arguments"
    assert _structured(refused)["message"].startswith(f"{name}: ")


@pytest.mark.parametrize(
    "params", [[1], "x", {"name": 5}, {"name": None}, {}, {"name": "cavemem_recall", "arguments": [1]}]
)
def test_a_call_without_a_name_or_with_arguments_that_are_no_object_is_a_protocol_error(
    shared_lines: LineClient, params: object
) -> None:
    refused = shared_lines.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    assert refused["id"] == 1
    assert refused["error"]["code"] in {-32600, -32602}


def test_an_unknown_tool_with_an_unencodable_name_is_answered(shared_lines: LineClient) -> None:
    assert shared_lines.ask(call("\ud800", {}))["error"]["code"] == -32602
    assert shared_lines.ask({"jsonrpc": "2.0", "id": 2, "method": "\ud800"})["error"]["code"] == -32601


def test_a_line_without_bound_is_skipped_in_bounded_memory(lines: LineClient) -> None:
    status = Path(f"/proc/{lines.process.pid}/status")
    if not status.exists():
        pytest.skip("only Linux tells how much memory a process has used")

    def peak_kib() -> int:
        return int(status.read_text().partition("VmHWM:")[2].split()[0])

    lines.ask(call("remember", {"text": FACT}))
    lines.ask(call("recall", {"query": FACT}))  # by now the token vocabulary is loaded
    before = peak_kib()
    for _ in range(128):
        lines.send_bytes(b"x" * (1024 * 1024))
    refused = lines.ask(b"")
    assert refused["error"]["code"] == -32600
    assert "longer" in refused["error"]["message"]
    assert lines.ask(ping(1))["id"] == 1
    assert peak_kib() - before < RSS_GROWTH_KIB_MAX


def test_the_largest_memory_fits_however_it_is_escaped(shared_lines: LineClient) -> None:
    text = "é" * 131_072
    escaped = json.dumps(call("remember", {"text": "here"})).replace("here", "\\u00e9" * 131_072)
    assert _structured(shared_lines.ask(escaped.encode()))["id"] == memory_id(text)


def test_cancelled_requests_are_not_answered_and_nothing_waits_for_them(lines: LineClient, tmp_path: Path) -> None:
    """More of them than the server lets wait at once, so that one that stayed counted would stop it from reading."""
    lines.ask(call("remember", {"text": FACT}))
    numbers = range(IN_FLIGHT_MAX + 1)
    for start in numbers[::30]:
        with write_lock(tmp_path):
            for id in numbers[start : start + 30]:
                lines.send(call("remember", {"text": f"fact number {id}"}, id=id))
            assert lines.ask(ping("all are being handled"))["result"] == {}
            for id in numbers[start : start + 30]:
                lines.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
            assert lines.ask(ping("all are cancelled"))["result"] == {}
    assert lines.ask(ping("still here"))["result"] == {}
    lines.stdin.close()
    assert lines.rest() == []
    assert lines.exit_code() == 0


def test_stdio_carries_nothing_but_protocol(tmp_path: Path) -> None:
    """Even when code, or a child process, uses what it believes to be stdin and stdout."""
    script = """
import os, subprocess, sys
from pathlib import Path
from cavemem_mcp import open_memory
from cavemem_mcp.transport import serve_stdio

def open_noisily():
    print("printed", flush=True)
    os.write(1, b"written")
    child = "import sys; print('child'); assert not sys.stdin.read()"
    subprocess.run([sys.executable, "-c", child], check=True)
    return open_memory(Path(os.environ["CAVEMAN_HOME"], "mem"))

sys.exit(serve_stdio(open_noisily))
"""
    with line_client(tmp_path, [sys.executable, "-c", script]) as lines:
        lines.initialize()
        assert _structured(lines.ask(call("remember", {"text": FACT})))["id"] == memory_id(FACT)
        lines.stdin.close()
        assert lines.rest() == []
        assert lines.exit_code() == 0
        for noise in ("printed", "written", "child"):
            assert noise in lines.errors.read_text()


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_the_end_of_stdin_lets_everything_received_be_answered(tmp_path: Path, kind: str) -> None:
    is_file = kind == "file"
    requests = [INITIALIZE, *(call("remember", {"text": f"fact number {n}"}, id=n) for n in range(1, 201))]
    path = tmp_path / "requests"
    path.write_bytes(b"".join(json.dumps(request).encode() + b"\n" for request in requests))
    with path.open("rb") as file, (tmp_path / "answers").open("wb") as answers:
        data = None if is_file else file.read()
        ended = subprocess.run(
            command(),
            env=environment(tmp_path),
            input=data,
            stdin=file if is_file else None,
            stdout=answers if is_file else subprocess.PIPE,
            stderr=subprocess.PIPE,
            check=False,
            timeout=30,
        )
    output = (tmp_path / "answers").read_bytes() if is_file else ended.stdout
    answered = {message["id"]: message for message in map(json.loads, output.splitlines())}
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == b""
    assert set(answered) == set(range(201))
    assert _structured(answered[200])["id"] == memory_id("fact number 200")


def test_a_client_that_stops_reading_ends_the_server(lines: LineClient) -> None:
    lines.stdout.close()
    with suppress(BrokenPipeError):
        lines.send(ping(1))
    assert lines.exit_code() == 0


@pytest.mark.parametrize(("number", "exit_code"), SIGNALS)
def test_a_signal_ends_an_idle_server(lines: LineClient, number: signal.Signals, exit_code: int) -> None:
    lines.process.send_signal(number)
    assert lines.rest() == []
    assert lines.exit_code() == exit_code
    assert lines.errors.read_bytes() == b""


@pytest.mark.parametrize(("number", "exit_code"), SIGNALS)
def test_a_signal_lets_a_write_in_progress_finish(
    lines: LineClient, tmp_path: Path, number: signal.Signals, exit_code: int
) -> None:
    lines.ask(call("remember", {"text": "first"}))
    with write_lock(tmp_path):
        lines.send(call("remember", {"text": FACT}, id="late"))
        lines.ask(ping(1))
        lines.process.send_signal(number)
    (answered,) = lines.rest()
    assert _structured(answered)["id"] == memory_id(FACT)
    assert lines.exit_code() == exit_code
    assert recalled(tmp_path, "webshop") == [FACT]


def test_a_signal_does_not_wait_for_a_write_that_cannot_finish(lines: LineClient, tmp_path: Path) -> None:
    lines.ask(call("remember", {"text": "first"}))
    with write_lock(tmp_path):
        lines.send(call("remember", {"text": FACT}, id="never"))
        lines.ask(ping(1))
        lines.process.terminate()
        assert lines.exit_code() == 143
    assert recalled(tmp_path, "webshop") == []


def test_a_signal_ends_the_wait_of_a_forget_which_is_answered(lines: LineClient, tmp_path: Path) -> None:
    lines.ask(call("remember", {"text": FACT}))
    with old_snapshot(tmp_path / "mem"):
        lines.send(call("forget", {"id": memory_id(FACT)}, id="late"))
        poll(lambda: not recalled(tmp_path, "webshop"))
        lines.process.terminate()
        (answered,) = lines.rest()
        assert _structured(answered) == {"forgotten": True}
        assert lines.exit_code() == 143


def test_a_second_signal_ends_the_server_at_once(lines: LineClient, tmp_path: Path) -> None:
    lines.ask(call("remember", {"text": "first"}))
    with write_lock(tmp_path):
        lines.send(call("remember", {"text": FACT}, id="never"))
        lines.ask(ping(1))
        end_by_two_signals(lines.process, is_ending=lines.is_refused)
    assert recalled(tmp_path, "webshop") == []


@pytest.mark.parametrize("client", ["reads", "does not read"])
def test_a_signal_ends_a_server_that_is_flooded(lines: LineClient, tmp_path: Path, client: str) -> None:
    is_read = client == "reads"
    received = [0]

    def flood() -> None:
        request = json.dumps(call("remember", {"text": FACT + " flood" * 100})).encode() + b"\n"
        with suppress(OSError, ValueError):
            while True:
                lines.send_bytes(request)

    def drain() -> None:
        with suppress(OSError, ValueError):
            while chunk := lines.stdout.read(65536):
                received[0] += chunk.count(b"\n")

    threads = [threading.Thread(target=flood, daemon=True)]
    threads += [threading.Thread(target=drain, daemon=True)] if is_read else []
    for thread in threads:
        thread.start()
    poll(lambda: (received[0] > 200) if is_read else bool(recalled(tmp_path, "webshop")))
    lines.process.terminate()
    assert lines.exit_code() == 143
    for thread in threads:
        thread.join(END_SECONDS_MAX)
        assert not thread.is_alive()


def test_no_server_outlives_a_killed_client(tmp_path: Path) -> None:
    """The server holds the write end of a pipe; the read end tells when every holder is gone."""
    script = """
import sys, threading
from pathlib import Path
from tests.server.processes import LineClient
client = LineClient(Path(sys.argv[1]), pass_fds=(int(sys.argv[2]),))
client.initialize()
print("ready", flush=True)
threading.Event().wait()
"""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as alive:
        client = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path), str(writer)], stdout=subprocess.PIPE, pass_fds=(writer,)
        )
        os.close(writer)
        assert client.stdout is not None
        with client.stdout:
            assert client.stdout.readline() == b"ready\n"
            os.set_blocking(reader, False)
            assert alive.read(1) is None
            client.kill()
            client.wait()
        poll(lambda: alive.read(1) == b"")


def test_a_terminal_can_be_typed_at_and_left_with_its_end_of_file_key(tmp_path: Path) -> None:
    import pty

    controller, terminal = pty.openpty()
    with os.fdopen(controller, "r+b", buffering=0) as screen:
        process = subprocess.Popen(
            command(), env=environment(tmp_path), stdin=terminal, stdout=terminal, stderr=subprocess.DEVNULL
        )
        os.close(terminal)
        screen.write(json.dumps(ping("typed")).encode() + b"\n")
        shown = b""
        while b'"result":{}' not in shown and b'"error"' not in shown:
            shown += screen.read(4096)
        assert b'"id":"typed"' in shown
        screen.write(b"\x04")
        assert process.wait(END_SECONDS_MAX) == 0


def test_closed_standard_descriptors_are_the_end_of_input(tmp_path: Path) -> None:
    ended = subprocess.run(
        ["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', *command()], env=environment(tmp_path), check=False, timeout=20
    )
    assert ended.returncode == 0
