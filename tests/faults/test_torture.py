"""Whatever a client sends, the server lives, answers what can be answered, and its memory stays flat."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import httpx2
import pytest

from cavemem_mcp.transport import IN_FLIGHT_MAX
from tests.faults import torture
from tests.remote.server import remote_server
from tests.server.processes import FACT, Json, LineClient, call, line_client, ping, write_lock

PARSE_ERROR, INVALID_REQUEST = -32700, -32600
RSS_KEPT_KIB_MAX: Final = 64 * 1024
"""What the longest lines may leave behind: allocators give back late what they gave once."""
RSS_GROWTH_KIB_MAX: Final = 8 * 1024
"""What a flood may add to that."""
LINE_BYTES_REPEATED_MAX: Final = 20_000
"""Longer lines are sent once: their length is what is odd about them, and reading them takes time."""

Expected = Callable[[Json], bool]


def _is_error(code: int, id: object) -> Expected:
    return lambda answer: answer["id"] == id and answer["error"]["code"] == code


def _is_tool_error(error_id: str) -> Expected:
    def is_expected(answer: Json) -> bool:
        result = answer["result"]
        return answer["id"] == 1 and result["isError"] and result["structuredContent"]["error"] == error_id

    return is_expected


def _is_result(id: object) -> Expected:
    return lambda answer: answer["id"] == id and "error" not in answer and not answer["result"].get("isError")


def _cases() -> dict[str, tuple[bytes, Expected | None]]:
    """Return every line by name, with what its answer must be; None where there must be none."""
    cases: dict[str, tuple[bytes, Expected | None]] = {}
    cases |= {f"not JSON: {name}": (line, _is_error(PARSE_ERROR, None)) for name, line in torture.NOT_JSON.items()}
    for name, (line, id) in torture.NOT_MESSAGES.items():
        cases[f"no message: {name}"] = line, _is_error(INVALID_REQUEST, id)
    cases |= {f"unanswered: {name}": (line, None) for name, line in torture.UNANSWERED.items()}
    for name, (message, code) in torture.PROTOCOL_ERRORS.items():
        cases[f"protocol: {name}"] = json.dumps(message).encode(), _is_error(code, 1)
    for name, (message, error_id) in torture.TOOL_ERRORS.items():
        cases[f"tool: {name}"] = json.dumps(message).encode(), _is_tool_error(error_id)
    for name, (line, id) in torture.ANSWERED.items():
        cases[f"odd: {name}"] = line, _is_result(id)
    return cases


CASES: Final = _cases()


def _rss_kib(pid: int) -> int:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[LineClient]:
    with line_client(tmp_path_factory.mktemp("torture")) as client:
        client.initialize()
        client.ask(call("remember", {"text": FACT}))
        yield client


def _answers(server: LineClient, line: bytes) -> list[Json]:
    """Send a line and a ping, and return what is answered besides the ping, which may come first."""
    server.send(line, ping("after"))
    answers = [server.receive()]
    while all(answer["id"] != "after" for answer in answers):
        answers.append(server.receive())
    return [answer for answer in answers if answer["id"] != "after"]


@pytest.mark.parametrize("name", CASES)
def test_each_line_is_answered_as_it_must_be(server: LineClient, name: str, figures: Counter[str]) -> None:
    line, is_expected = CASES[name]
    answers = _answers(server, line)
    if is_expected is not None and not answers:  # a worker thread was slower than the ping
        answers = [server.receive()]
    figures["bad inputs tried over stdio"] += 1
    if is_expected is None:
        assert answers == []
    else:
        (answer,) = answers
        assert set(answer) in ({"jsonrpc", "id", "result"}, {"jsonrpc", "id", "error"})
        assert answer["jsonrpc"] == "2.0"
        assert is_expected(answer), answer


@pytest.mark.parametrize("name", torture.TOO_LONG)
def test_a_line_that_is_too_long_is_refused(server: LineClient, name: str, figures: Counter[str]) -> None:
    (answer,) = _answers(server, torture.TOO_LONG[name])
    assert _is_error(INVALID_REQUEST, None)(answer), answer
    figures["bad inputs tried over stdio"] += 1


def test_requests_that_share_an_id_are_all_answered(tmp_path: Path) -> None:
    """The protocol forbids it; a server that counted them by id would wait for some of them for ever."""
    count = IN_FLIGHT_MAX // 2
    with line_client(tmp_path) as client:
        client.initialize()
        client.ask(call("remember", {"text": FACT}))
        for _ in range(4):
            with write_lock(tmp_path):
                client.send(*(call("remember", {"text": f"fact number {n}"}, id="same") for n in range(count)))
                assert client.ask(ping("all are being handled"))["result"] == {}
            assert [client.receive()["id"] for _ in range(count)] == ["same"] * count
        client.stdin.close()
        assert client.rest() == []
        assert client.exit_code() == 0


def _exchange(client: LineClient, cases: Sequence[tuple[bytes, Expected | None]], rounds: int) -> None:
    """Send lines without waiting for their answers, so many times over, and receive exactly as many as are due."""
    lines = b"".join(line + b"\n" for line, _ in cases)
    sender = threading.Thread(target=client.send_bytes, args=(lines * rounds,))
    sender.start()
    for _ in range(rounds * sum(is_expected is not None for _, is_expected in cases)):
        answer = client.receive()
        assert answer["jsonrpc"] == "2.0"
        assert ("result" in answer) != ("error" in answer)
    sender.join()
    assert client.ask(ping("after")) == {"jsonrpc": "2.0", "id": "after", "result": {}}


def test_all_of_them_many_times_over_leave_nothing_behind(
    tmp_path: Path, sized: Callable[[int, int], int], figures: Counter[str]
) -> None:
    """More often than requests may wait for their answer: one that stayed counted would stop the server in the end."""
    too_long = [(line, _is_error(INVALID_REQUEST, None)) for line in torture.TOO_LONG.values()]
    short = [case for case in CASES.values() if len(case[0]) <= LINE_BYTES_REPEATED_MAX]
    rounds = sized(IN_FLIGHT_MAX + 1, 1000)
    with line_client(tmp_path) as client:
        client.initialize()
        client.ask(call("remember", {"text": FACT}))
        client.ask(call("recall", {"query": FACT}))  # now what every server needs is loaded
        idle = _rss_kib(client.process.pid)
        _exchange(client, [*too_long, *CASES.values()], 1)
        before = _rss_kib(client.process.pid)
        _exchange(client, short, rounds)
        growth = _rss_kib(client.process.pid) - before
        client.stdin.close()
        assert client.rest() == []
        assert client.exit_code() == 0
        assert 'File "' not in client.errors.read_text(), "the trace of a defect"
    assert before - idle < RSS_KEPT_KIB_MAX
    assert growth < RSS_GROWTH_KIB_MAX
    figures["bad inputs tried over stdio"] += len(short) * rounds + len(CASES) + len(too_long)
    figures["KiB that a server grew by in a flood of bad input"] = growth


ERAS: Final[list[dict[str, str]]] = [{}, {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "ping"}]
"""The protocol's older way over HTTP, and the newest, which names the method in a header too."""


def test_over_http_each_is_refused_or_answered_and_none_is_the_servers_fault(
    tmp_path: Path, figures: Counter[str]
) -> None:
    with remote_server(tmp_path) as server, server.client() as client:
        server.tool(None, "remember", text=FACT)
        assert server.recalled(None, FACT) == [FACT]
        before = _rss_kib(server.process.pid)
        for name, (line, _) in CASES.items():
            for headers in ERAS:
                answered = client.post("/mcp", content=line, headers=headers)
                assert answered.status_code < 500, name
                assert b"-32603" not in answered.content, name
                assert answered.status_code == 400 or not name.startswith("not JSON"), name
                figures["bad inputs tried over HTTP"] += 1
        for line in torture.TOO_LONG.values():
            with suppress(httpx2.WriteError):  # the server does not wait for the end of it
                assert client.post("/mcp", content=line).status_code == 413
            figures["bad inputs tried over HTTP"] += 1
        assert server.post(None, ping(1)).json()["result"] == {}
        assert _rss_kib(server.process.pid) - before < RSS_KEPT_KIB_MAX
        assert 'File "' not in server.errors(), "the trace of a defect"
