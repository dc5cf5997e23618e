"""What one client, or all together, may ask for: each limit refuses, tells how to go on, and harms nobody else."""

import json
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cavemem_mcp import InvalidArgumentsError
from cavemem_mcp.limits import RequestRate
from cavemem_mcp.model import MEMORY_BYTES_MAX, memory_id
from cavemem_mcp.settings import FLAGS, HttpSettings, http_settings, variable
from tests.remote.server import SECONDS_MAX, RemoteServer, TokenFile, bearer, poll, remote_server
from tests.server.processes import FACT, call, command, ping, write_lock

SHORT = {"CAVEMAN_HEADER_TIMEOUT": "1", "CAVEMAN_BODY_TIMEOUT": "1", "CAVEMAN_IDLE_TIMEOUT": "1"}


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Generator[RemoteServer]:
    """Return a server that waits for one second at most, for anything."""
    with remote_server(tmp_path_factory.mktemp("impatient"), settings=SHORT) as server:
        yield server


def _numbers() -> list[str]:
    return [flag for flag, setting in FLAGS.items() if isinstance(setting.default, int)]


def test_flags_come_before_variables_and_variables_before_defaults() -> None:
    assert http_settings({}, {}) == HttpSettings()
    assert http_settings({}, {"CAVEMAN_MAX_REQUESTS": "7"}).max_requests == 7
    assert http_settings({"--max-requests": "8"}, {"CAVEMAN_MAX_REQUESTS": "7"}).max_requests == 8
    assert http_settings({}, {"CAVEMAN_MAX_REQUESTS": ""}).max_requests == HttpSettings.max_requests


@pytest.mark.parametrize("flag", _numbers())
def test_every_number_is_checked_and_named_as_it_was_given(flag: str) -> None:
    for senseless in ("many", "-1", "1.5", *(["0"] if flag != "--port" else [])):
        with pytest.raises(InvalidArgumentsError, match=f"^{flag}: "):
            http_settings({flag: senseless}, {})
        with pytest.raises(InvalidArgumentsError, match=f"^{variable(flag)}: "):
            http_settings({}, {variable(flag): senseless})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"--oauth-issuer": "https://a.example"}, "set all three"),
        ({"--tls-cert": "a.pem"}, "set both"),
        ({"--log-level": "debug"}, "info or warning"),
        (
            {
                "--auth-tokens": "t",
                "--oauth-issuer": "https://a.example",
                "--oauth-audience": "https://b.example",
                "--oauth-jwks": "k",
            },
            "choose one way",
        ),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgumentsError, match=message):
        http_settings(options, {})


def test_an_option_of_the_http_server_is_refused_over_stdio() -> None:
    ended = subprocess.run(command("mcp", "--max-requests", "7"), capture_output=True, check=False, timeout=20)
    assert ended.returncode == 1
    assert b"--max-requests needs --transport streamable-http" in ended.stderr


def test_the_body_limit_can_be_set_and_holds_with_and_without_a_length(tmp_path: Path) -> None:
    with remote_server(tmp_path, "--max-body-bytes", "1000") as server, server.client() as client:
        assert client.post("/mcp", content=b" " * 1001).status_code == 413
        assert client.post("/mcp", content=iter([b" " * 600, b" " * 600])).status_code == 413
        assert server.post(None, ping(1)).status_code == 200


def test_the_largest_memory_fits_however_its_json_is_escaped(impatient: RemoteServer) -> None:
    body = json.dumps(call("remember", {"text": "here"})).replace("here", "\\u0041" * MEMORY_BYTES_MAX)
    with impatient.client() as client:
        answered = client.post("/mcp", content=body).json()["result"]["structuredContent"]
    assert answered["id"] == memory_id("A" * MEMORY_BYTES_MAX)


def test_requests_beyond_those_that_may_be_answered_at_once_are_put_off(tmp_path: Path) -> None:
    with remote_server(tmp_path, "--max-requests", "2") as server, ExitStack() as stack:
        server.tool(None, "remember", text="first")
        stack.enter_context(write_lock(tmp_path))
        for number in range(2):
            _send_write(stack, server, f"fact {number}")
        with server.client() as client:
            while (refused := client.post("/mcp", content=json.dumps(ping(1)))).status_code == 200:
                pass  # the writes are on their way
            assert refused.status_code == 503
            assert refused.headers["retry-after"] == "1"
            assert client.get("/healthz").status_code == 200


def _send_write(stack: ExitStack, server: RemoteServer, text: str) -> None:
    """Send a request and do not wait for its answer."""
    connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), SECONDS_MAX))
    body = json.dumps(call("remember", {"text": text})).encode()
    connection.sendall(_head(server, len(body)) + body)


def _head(server: RemoteServer, length: int, secret: str = "") -> bytes:
    authorization = f"Authorization: {bearer(secret)['Authorization']}\r\n" if secret else ""
    return (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
        f"Accept: application/json\r\n{authorization}Content-Length: {length}\r\n\r\n"
    ).encode()


def test_a_principal_beyond_its_rate_is_told_when_to_come_back_and_others_are_served(
    tmp_path: Path, tokens: TokenFile
) -> None:
    with remote_server(
        tmp_path / "home", "--auth-tokens", str(tokens.path), "--requests-per-second=1", "--request-burst=5"
    ) as server:
        with server.client(tokens.secrets["alice"]) as client:
            answers = [client.post("/mcp", content=json.dumps(ping(1))) for _ in range(15)]
        refused = [answered for answered in answers if answered.status_code == 429]
        assert answers[0].status_code == 200
        assert len(refused) >= 5
        assert all(int(answered.headers["retry-after"]) >= 1 for answered in refused)
        assert server.post(tokens.secrets["bob"], ping(1)).status_code == 200
        assert server.post("guess", ping(1)).status_code == 401


@given(
    pauses=st.lists(st.floats(0, 3), max_size=60),
    per_second=st.integers(1, 20),
    burst=st.integers(1, 20),
)
def test_a_bucket_admits_its_burst_and_its_rate_and_no_more(pauses: list[float], per_second: int, burst: int) -> None:
    now = 0.0
    rate = RequestRate(per_second=per_second, burst=burst, clock=lambda: now)
    admitted = 0
    for pause in pauses:
        now += pause
        wait = rate.take("a")
        admitted += not wait
        assert rate.take("b") == 0 or burst < len(pauses), "another principal has a bucket of its own"
        if wait:
            assert wait <= 1 / per_second + 1e-6
    assert admitted <= burst + now * per_second + 1e-6


def test_a_principal_that_waits_as_told_is_admitted() -> None:
    now = 0.0
    rate = RequestRate(per_second=3, burst=1, clock=lambda: now)
    assert rate.take("a") == 0
    wait = rate.take("a")
    now += wait + 1e-9
    assert rate.take("a") == 0


def _is_closed_by_the_server(connection: socket.socket) -> bytes:
    """Return what the server sends before it closes the connection; fail when it does not close it."""
    received = b""
    connection.settimeout(SECONDS_MAX)
    while chunk := connection.recv(65536):
        received += chunk
    return received


@pytest.mark.parametrize("sent", [b"", b"P", b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX: y"])
def test_a_head_that_does_not_come_closes_the_connection(impatient: RemoteServer, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", impatient.port)) as connection:
        connection.sendall(sent)
        assert _is_closed_by_the_server(connection) == b""


def test_a_head_that_comes_byte_by_byte_closes_the_connection(impatient: RemoteServer) -> None:
    with socket.create_connection(("127.0.0.1", impatient.port)) as connection:
        connection.settimeout(0.2)
        began = time.monotonic()
        for byte in b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X" * 1000:
            try:
                connection.sendall(bytes([byte]))
                if connection.recv(1) == b"":
                    break
            except TimeoutError:
                assert time.monotonic() < began + SECONDS_MAX, "still open"
            except ConnectionError:
                break
        else:
            raise AssertionError("the whole head was taken")


def test_a_second_request_is_timed_like_the_first(impatient: RemoteServer) -> None:
    body = json.dumps(ping(1)).encode()
    with socket.create_connection(("127.0.0.1", impatient.port)) as connection:
        connection.sendall(_head(impatient, len(body)) + body + b"POST /m")
        received = _is_closed_by_the_server(connection)
    assert received.startswith(b"HTTP/1.1 200")


def test_an_idle_connection_is_closed(impatient: RemoteServer) -> None:
    body = json.dumps(ping(1)).encode()
    with socket.create_connection(("127.0.0.1", impatient.port)) as connection:
        connection.sendall(_head(impatient, len(body)) + body)
        assert _is_closed_by_the_server(connection).startswith(b"HTTP/1.1 200")


def test_a_body_that_does_not_come_is_refused(impatient: RemoteServer) -> None:
    with socket.create_connection(("127.0.0.1", impatient.port)) as connection:
        connection.sendall(_head(impatient, 100) + b'{"jsonrpc"')
        assert _is_closed_by_the_server(connection).startswith(b"HTTP/1.1 408")


def test_a_body_of_somebody_unknown_is_not_waited_for(shared: tuple[RemoteServer, dict[str, str]]) -> None:
    server, _ = shared
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(_head(server, 2_000_000, "guess") + b"{")
        connection.settimeout(SECONDS_MAX)
        assert connection.recv(65536).startswith(b"HTTP/1.1 401")


def test_an_answer_that_nobody_reads_closes_the_connection(impatient: RemoteServer) -> None:
    big = "".join(f"the gateway log, line {number}\n" for number in range(9000))[:MEMORY_BYTES_MAX]
    id = impatient.tool(None, "remember", text=big)["id"]
    body = json.dumps(call("history", {"id": id})).encode()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", impatient.port))
        for _ in range(40):  # more than the buffers of both ends hold
            connection.sendall(_head(impatient, len(body)) + body)
        _wait_until_connections(impatient, 0)
    assert impatient.post(None, ping(1)).status_code == 200


def _wait_until_connections(server: RemoteServer, count: int) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while _connections(server) > count:
        assert time.monotonic() < deadline, "the connection stays open"


def _connections(server: RemoteServer) -> int:
    """Return how many connections the server's end has open."""
    local = f"0100007F:{server.port:04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sum(line.split()[1] == local and line.split()[3] == "01" for line in lines)


def _silent(stack: ExitStack, server: RemoteServer, sent: bytes = b"") -> socket.socket:
    connection = stack.enter_context(closing(socket.create_connection(("127.0.0.1", server.port), SECONDS_MAX)))
    connection.sendall(sent)
    return connection


@pytest.mark.parametrize(
    "sent", [b"", b"POST /mcp HTTP/1.1\r\nX: ", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"]
)
def test_connections_that_ask_for_nothing_make_room_for_others_oldest_first(tmp_path: Path, sent: bytes) -> None:
    """They are silent, or in the middle of a head, or were answered and wait. A client that works is not closed."""
    patient = ("--max-connections=5", "--header-timeout=60", "--idle-timeout=60")
    with remote_server(tmp_path, *patient) as server, server.client() as client, ExitStack() as stack:
        silent: list[socket.socket] = []
        for number in range(12):
            silent.append(_silent(stack, server, sent))
            assert client.post("/mcp", content=json.dumps(ping(number))).status_code == 200
            assert server.post(None, ping(number)).status_code == 200
        assert _connections(server) <= 5
        for connection in silent[:8]:
            _is_closed_by_the_server(connection)


def _being_answered(stack: ExitStack, server: RemoteServer, secret: str = "") -> None:
    """Send a request whose body never comes, and wait until the server waits for it."""
    head = _head(server, 100, secret).replace(b"Accept:", b"Expect: 100-continue\r\nAccept:")
    assert _silent(stack, server, head).recv(12) == b"HTTP/1.1 100"


def test_connections_beyond_those_that_may_be_open_are_put_off_while_all_are_being_answered(tmp_path: Path) -> None:
    with remote_server(tmp_path, "--max-connections", "5") as server:
        with ExitStack() as stack:
            for _ in range(4):
                _being_answered(stack, server)
            assert server.post(None, ping(1)).status_code == 503
        poll(lambda: server.post(None, ping(1)).status_code == 200)


def test_one_principal_cannot_take_all_places(tmp_path: Path, tokens: TokenFile) -> None:
    with (
        remote_server(tmp_path / "home", "--auth-tokens", str(tokens.path), "--max-requests", "4") as server,
        ExitStack() as stack,
    ):
        for _ in range(2):
            _being_answered(stack, server, tokens.secrets["alice"])
        assert server.post(tokens.secrets["alice"], ping(1)).status_code == 503
        assert server.post(tokens.secrets["bob"], ping(1)).status_code == 200
        stack.close()
        poll(lambda: server.post(tokens.secrets["alice"], ping(1)).status_code == 200)


def test_a_full_store_refuses_new_memories_and_loses_nothing(tmp_path: Path, tokens: TokenFile) -> None:
    with remote_server(tmp_path / "home", "--auth-tokens", str(tokens.path), "--max-store-bytes", "400000") as server:
        alice, stored = tokens.secrets["alice"], list[str]()
        while "error" not in (answered := server.tool(alice, "remember", text=_text(len(stored)))):
            stored.append(answered["id"])
            assert len(stored) < 100
        assert answered["error"] == "cave_store_full"
        assert "forget" in answered["message"]
        assert server.tool(alice, "supersede", id=stored[0], text="new")["error"] == "cave_store_full"
        assert all(len(server.tool(alice, "history", id=id)["history"]) == 1 for id in stored)
        assert "error" not in server.tool(alice, "remember", text=_text(0)), "it is stored already"
        assert "error" not in server.tool(tokens.secrets["bob"], "remember", text=FACT), "another store has its own"
        for id in stored[:3]:
            assert server.tool(alice, "forget", id=id) == {"forgotten": True}
        assert "error" not in server.tool(alice, "remember", text="there is room again")


def _text(number: int) -> str:
    return f"Fact {number} " + f"word{number} " * 1000
