"""What an operator sees and does: health, log lines, metrics and spans, and how the server stops."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cavemem_mcp import open_memory
from cavemem_mcp.http import FILES_OPEN_MAX, build_app
from cavemem_mcp.settings import HttpSettings
from cavemem_mcp.store import open_snapshot
from cavemem_mcp.stores import StorePool
from tests.remote.server import HEADERS, RemoteServer, TokenFile, bearer, poll, remote_server
from tests.server.processes import FACT, call, command, old_snapshot, ping

TEXT = "Zanzibar is the password's hint."
STOP_SECONDS_MAX = 5


def test_health_needs_no_secret_and_says_nothing(shared: tuple[RemoteServer, dict[str, str]]) -> None:
    server, _ = shared
    with server.client() as client:
        for path, body in (("/healthz", "ok\n"), ("/readyz", "ready\n")):
            answered = client.get(path, headers={"Host": "10.0.0.7"})
            assert (answered.status_code, answered.text) == (200, body)
            assert client.head(path).status_code == 200
            assert client.post(path).status_code == 405


def test_a_server_whose_default_store_does_not_open_is_alive_and_not_ready(tmp_path: Path) -> None:
    (tmp_path / "mem").mkdir()
    (tmp_path / "mem" / "mem.db").write_bytes(b"no database " * 1000)
    with remote_server(tmp_path) as server, server.client() as client:
        assert client.get("/healthz").status_code == 200
        answered = client.get("/readyz")
        assert (answered.status_code, answered.text) == (503, "not ready\n")
        server.wait_for("not ready: ")


def test_a_server_becomes_ready_when_its_disk_can_be_written_again(tmp_path: Path) -> None:
    if not os.geteuid():
        pytest.skip("root writes everywhere")
    with remote_server(tmp_path) as server, server.client() as client:
        (tmp_path / "mem").chmod(0o500)
        poll(lambda: client.get("/readyz").status_code == 503)
        (tmp_path / "mem").chmod(0o700)
        poll(lambda: client.get("/readyz").status_code == 200)


def test_each_request_has_one_line_that_says_who_what_and_how(server: RemoteServer, tokens: TokenFile) -> None:
    alice, carol = tokens.secrets["alice"], tokens.secrets["carol"]
    server.tool(alice, "remember", text=TEXT)
    server.tool(carol, "forget", id="mem_Zanzibar")
    server.tool(alice, "history", id="mem_Zanzibar")
    server.post(alice, {**call("recall", {"query": "Zanzibar"}), "params": {"name": "Zanzibar", "arguments": {}}})
    server.post(alice, {"jsonrpc": "2.0", "id": "Zanzibar", "method": "Zanzibar/Zanzibar"})
    server.post("Zanzibar", ping(1))
    server.post(alice, ping(1), {"Host": "Zanzibar"})
    with server.client() as client:
        client.get("/Zanzibar?Zanzibar=1", headers={"User-Agent": "Zanzibar"})
    poll(lambda: len(server.lines()) == 8)
    seen = [
        (line.get("principal"), line.get("tool") or line.get("method"), line["outcome"], line.get("status"))
        for line in server.lines()
    ]
    assert seen == [
        ("alice", "cavemem_remember", "ok", 200),
        ("carol", "cavemem_forget", "cave_forbidden", 200),
        ("alice", "cavemem_history", "cave_history_failed", 200),
        ("alice", "other", "failed", 200),
        ("alice", "other", "ok", 200),
        (None, None, "refused", 401),
        (None, None, "refused", 421),
        (None, None, "refused", 404),
    ]
    assert all(line["ms"] >= 0 for line in server.lines())
    assert "Zanzibar" not in server.errors()


def test_the_lines_can_be_turned_off(tmp_path: Path) -> None:
    with remote_server(tmp_path, "--log-level", "warning") as server:
        server.tool(None, "remember", text=FACT)
        server.stop()
        assert server.lines() == []


def test_a_log_that_nobody_reads_does_not_stop_the_server(tmp_path: Path) -> None:
    """The pipe holds 64 KiB, which is fewer lines than requests are sent here."""
    process = subprocess.Popen(
        command("mcp", "--transport", "streamable-http", "--port", "0"),
        env={**os.environ, "CAVEMAN_HOME": str(tmp_path)},
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        url = process.stderr.readline().split()[-1].decode()
        with httpx2.Client(headers=HEADERS, trust_env=False, timeout=20) as client:
            for _ in range(1200):
                assert client.post(url, content=json.dumps(ping(1))).status_code == 200
    finally:
        process.kill()
        process.communicate()


class _Observed:
    """What an OpenTelemetry SDK in the process would export."""

    def __init__(self) -> None:
        from opentelemetry import metrics, trace

        self._reader = InMemoryMetricReader()
        self.spans = InMemorySpanExporter()
        metrics.set_meter_provider(MeterProvider([self._reader]))
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        trace.set_tracer_provider(tracers)

    def metrics(self) -> dict[str, list[Any]]:
        """Return each metric's data points."""
        data = self._reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture(scope="module")
def observed() -> _Observed:
    return _Observed()


@pytest.fixture
def pool(tmp_path: Path) -> Generator[StorePool]:
    pool = StorePool(tmp_path, open_memory, open_max=4, idle_seconds_max=60, keeps_default=True)
    yield pool
    pool.close()


async def test_calls_are_counted_and_traced_without_their_text(observed: _Observed, pool: StorePool) -> None:
    from cavemem_mcp.telemetry import observe_stores

    observe_stores(pool.sizes)
    app = build_app(pool, HttpSettings(), None, names=[])
    transport = httpx2.ASGITransport(app=app)

    async def tool(name: str, **arguments: object) -> None:
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=HEADERS) as client:
            answered = await client.post("/mcp", content=json.dumps(call(name, arguments)))
            assert answered.status_code == 200

    async with _lifespan(app):
        await tool("remember", text=TEXT)
        await tool("remember", text=TEXT + " Again, with many more words. " * 20)
        await tool("recall", query="Zanzibar")
        await tool("recall", query="Zanzibar", token_budget=12)
        await tool("recall", query="nothing like it")
        await tool("forget", id="mem_Zanzibar", more=1)
        measured = observed.metrics()

    calls = measured["cavemem.requests"]
    counted = {(point.attributes["tool"], point.attributes["outcome"]): point.value for point in calls}
    assert counted == {
        ("cavemem_remember", "ok"): 2,
        ("cavemem_recall", "ok"): 3,
        ("cavemem_forget", "cave_invalid_arguments"): 1,
    }
    assert sum(point.count for point in measured["cavemem.request.duration"]) == 6
    (hits,) = measured["cavemem.recall.hits"]
    assert (hits.count, hits.sum) == (3, 3)
    assert [point.value for point in measured["cavemem.recall.empty"]] == [1]
    assert measured["cavemem.recall.tokens"][0].value > 20
    assert [point.value for point in measured["cavemem.recall.omitted"]] == [1]
    (size,) = measured["cavemem.store.size"]
    assert (size.attributes["store"], size.value > 4096) == ("", True)

    spans = observed.spans.get_finished_spans()
    recalls = [span for span in spans if span.name == "tools/call cavemem_recall"]
    assert [(span.attributes or {})["cavemem.hits"] for span in recalls] == [2, 1, 0]
    assert "Zanzibar" not in "".join(span.to_json() for span in spans) + repr(measured)


class _lifespan:
    """Start and stop an application as a server does."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __aenter__(self) -> None:
        inner = self._app
        while not hasattr(inner, "router"):
            inner = inner._app
        self._context = inner.router.lifespan_context(inner)
        await self._context.__aenter__()

    async def __aexit__(self, *exception: object) -> None:
        await self._context.__aexit__(None, None, None)


def test_a_stop_lets_the_calls_in_progress_be_answered_and_ends_in_time_whatever_is_open(
    server: RemoteServer, tokens: TokenFile
) -> None:
    """Open are: a connection that sends nothing, half a head, half a body, an idle one, and two that want a stream."""
    secret = tokens.secrets["alice"]
    listen: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "subscriptions/listen",
        "params": {
            "notifications": {"toolsListChanged": True},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    }
    head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {bearer(secret)['Authorization']}\r\n".encode()
    kind = b"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
    modern = b"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\n"
    body, silent = json.dumps(listen).encode(), json.dumps(ping(1)).encode()
    sent = [
        b"",
        head,
        head + kind + b"Content-Length: 100\r\n\r\n{",
        head + kind + f"Content-Length: {len(silent)}\r\n\r\n".encode() + silent,
        head + kind + modern + f"Content-Length: {len(body)}\r\n\r\n".encode() + body,
        head.replace(b"POST", b"GET") + b"Accept: text/event-stream\r\n\r\n",
    ]
    connections = [socket.create_connection(("127.0.0.1", server.port)) for _ in sent]
    for connection, data in zip(connections, sent, strict=True):
        connection.sendall(data)
    poll(lambda: len(server.lines()) >= 1)
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(STOP_SECONDS_MAX) == 143
    assert time.monotonic() - began < STOP_SECONDS_MAX
    for connection in connections:
        connection.close()
    assert not list((server.home / "stores").rglob("mem.db-wal")), "the stores were closed"


def _is_stored(folder: Path, id: str) -> bool:
    with open_snapshot(folder, wait_ms_max=1000) as snapshot:
        return snapshot.memory(id) is not None


def test_a_signal_ends_the_wait_of_a_forget_which_is_answered(server: RemoteServer, tokens: TokenFile) -> None:
    secret = tokens.secrets["alice"]
    folder = server.home / "stores" / "alice" / "mem"
    id = server.tool(secret, "remember", text=FACT)["id"]
    with old_snapshot(folder), ThreadPoolExecutor(1) as threads:
        forgotten = threads.submit(server.tool, secret, "forget", id=id)
        poll(lambda: not _is_stored(folder, id))
        server.process.terminate()
        assert forgotten.result() == {"forgotten": True}
        assert server.process.wait(STOP_SECONDS_MAX) == 143


def test_the_server_may_open_more_files_than_its_limits_need(shared: tuple[RemoteServer, dict[str, str]]) -> None:
    server, _ = shared
    limits = Path(f"/proc/{server.process.pid}/limits").read_text()
    (row,) = [line.split() for line in limits.splitlines() if line.startswith("Max open files")]
    assert int(row[3]) >= min(FILES_OPEN_MAX, int(row[4]))
