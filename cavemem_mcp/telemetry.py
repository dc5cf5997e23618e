"""What an operator sees of HTTP requests: a log line each, OpenTelemetry metrics, attributes of spans. No user's text.

The SDK makes the spans. Without an OpenTelemetry SDK in the process, all of it but the log costs next to nothing.
"""

import json
import logging
import queue
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from logging.handlers import QueueHandler, QueueListener
from typing import Any, Final, cast

from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from opentelemetry import metrics, trace
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cavemem_mcp import __version__
from cavemem_mcp.auth import principal_of

LINES_WAITING_MAX: Final = 10_000
"""Log lines that wait for a stderr that nobody reads; more are dropped, so that logging never stops the server."""
PATHS: Final = {"/mcp", "/healthz", "/readyz"}
METHODS: Final = {
    "completion/complete",
    "initialize",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/templates/list",
    "server/discover",
    "subscriptions/listen",
    "tools/call",
    "tools/list",
}
"""What the log names; anything else is the client's text."""
OTHER: Final = "other"

requests_logger = logging.getLogger("cavemem_mcp.requests")

_meter = metrics.get_meter("cavemem_mcp", __version__)
_requests = _meter.create_counter("cavemem.requests", "{request}", "Tool calls, by tool and outcome")
_seconds = _meter.create_histogram("cavemem.request.duration", "s", "Time that tool calls took")
_hits = _meter.create_histogram("cavemem.recall.hits", "{hit}", "Hits of each recall")
_empty = _meter.create_counter("cavemem.recall.empty", "{recall}", "Recalls that found nothing")
_tokens = _meter.create_counter("cavemem.recall.tokens", "{token}", "Tokens that recalls put into contexts")
_omitted = _meter.create_counter("cavemem.recall.omitted", "{hit}", "Ranked hits that budgets left out")


@dataclass
class _Served:
    """What is known of the request that is being served; the parts that serve it fill it in."""

    method: str | None = None
    tool: str | None = None
    outcome: str | None = None


_served: ContextVar[_Served | None] = ContextVar("served", default=None)


class RequestLog:
    """Writes one line a request: when, who, what, how it ended, in how many milliseconds."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or not requests_logger.isEnabledFor(logging.INFO):
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        served = _Served()
        status: int | None = None

        async def send_seen(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        reset = _served.set(served)
        try:
            await self._app(scope, receive, send_seen)
        finally:
            _served.reset(reset)
            principal = principal_of(scope)
            _log(
                principal=principal.client_id if principal is not None else None,
                path=scope["path"] if scope["path"] in PATHS else OTHER,
                method=served.method,
                tool=served.tool,
                outcome=served.outcome or ("ok" if status is not None and status < 400 else "refused"),
                status=status,
                ms=round((time.perf_counter() - began) * 1000, 1),
            )


def _log(**fields: object) -> None:
    requests_logger.info(json.dumps({name: value for name, value in fields.items() if value is not None}))


class CallTelemetry(ServerMiddleware[Any]):
    """Counts tool calls and what they gave, in the SDK's place for that: inside its span, around the tool."""

    def __init__(self, tools: Iterable[str]) -> None:
        self._tools = frozenset(tools)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve one message."""
        served = _served.get() or _Served()
        served.method = ctx.method if ctx.method in METHODS else OTHER
        if ctx.method != "tools/call" or ctx.request_id is None:  # a call that wants no answer is not made
            return await call_next(ctx)
        name = (ctx.params or {}).get("name")
        served.tool = name if isinstance(name, str) and name in self._tools else OTHER
        served.outcome = "failed"
        began = time.perf_counter()
        try:
            result = await call_next(ctx)
            wire = cast("Mapping[str, Any]", result)  # as the client gets it
            served.outcome = _outcome(wire)
            if served.tool == "cavemem_recall" and served.outcome == "ok":
                _count_recall(wire["structuredContent"])
            return result
        finally:
            attributes = {"tool": served.tool, "outcome": served.outcome}
            _requests.add(1, attributes)
            _seconds.record(time.perf_counter() - began, attributes)
            trace.get_current_span().set_attribute("cavemem.outcome", served.outcome)


def _outcome(result: Mapping[str, Any]) -> str:
    return str(result["structuredContent"]["error"]) if result.get("isError") else "ok"


def _count_recall(recalled: Mapping[str, Any]) -> None:
    hits: list[Mapping[str, Any]] = recalled["hits"]
    tokens, omitted = sum(hit["tokens_added"] for hit in hits), recalled.get("omitted", 0)
    _hits.record(len(hits))
    _tokens.add(tokens)
    _omitted.add(omitted)
    if not hits:
        _empty.add(1)
    trace.get_current_span().set_attributes(
        {"cavemem.hits": len(hits), "cavemem.tokens": tokens, "cavemem.omitted": omitted}
    )


_store_sizes: list[Callable[[], Mapping[str, int]]] = []


def observe_stores(sizes: Callable[[], Mapping[str, int]]) -> None:
    """Report the size of each open store, from now on, whenever metrics are collected."""
    _store_sizes[:] = [sizes]


def _observed_sizes(_: metrics.CallbackOptions) -> list[metrics.Observation]:
    return [metrics.Observation(size, {"store": store}) for sizes in _store_sizes for store, size in sizes().items()]


_meter.create_observable_gauge("cavemem.store.size", [_observed_sizes], "By", "Bytes that an open store's files take")


class _DroppingHandler(QueueHandler):
    """Hands lines to the thread that writes them, and drops those that it is too far behind for."""

    def enqueue(self, record: logging.LogRecord) -> None:
        with suppress(queue.Full):
            self.queue.put_nowait(record)


@contextmanager
def request_lines(*, is_on: bool) -> Generator[None]:
    """Write request lines to stderr while the block runs, from a thread: a slow reader does not slow the server."""
    if not is_on:
        yield
        return
    lines: queue.Queue[logging.LogRecord] = queue.Queue(LINES_WAITING_MAX)
    writer = logging.StreamHandler(sys.stderr)
    writer.setFormatter(logging.Formatter("%(asctime)s %(levelname)s request %(message)s"))
    listener = QueueListener(lines, writer)
    handler = _DroppingHandler(lines)
    requests_logger.addHandler(handler)
    requests_logger.setLevel(logging.INFO)
    requests_logger.propagate = False
    listener.start()
    try:
        yield
    finally:
        requests_logger.removeHandler(handler)
        listener.stop()
