"""What one client, or all together, may ask of the HTTP server: requests at once, requests a second, time to send."""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final, cast

import anyio
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from cavemem_mcp.auth import principal_of

BUCKETS_MAX: Final = 10_000
"""Principals whose rate is remembered; whoever was quiet for longest is forgotten first, and starts afresh."""

LARGE_BODY_BYTES: Final = 64 * 1024
LARGE_BODIES_AT_ONCE: Final = 4


class RequestRate:
    """A token bucket for each principal: `burst` requests at once, refilled at `per_second`."""

    def __init__(self, *, per_second: int, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str) -> float:
        """Take one request out of a principal's bucket; return 0, or the seconds until there is one."""
        now = self._clock()
        left, filled_at = self._buckets.pop(name, (float(self._burst), now))
        left = min(self._burst, left + (now - filled_at) * self._per_second)
        is_allowed = left >= 1
        self._buckets[name] = (left - is_allowed, now)
        if len(self._buckets) > BUCKETS_MAX:
            self._buckets.popitem(last=False)
        return 0 if is_allowed else (1 - left) / self._per_second


class RateLimit:
    """Refuses what a principal asks above its rate; what comes without one is not limited."""

    def __init__(self, app: ASGIApp, rate: RequestRate) -> None:
        self._app = app
        self._rate = rate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        principal = principal_of(scope)
        wait = self._rate.take(principal.client_id) if principal is not None else 0
        if wait:
            refusal = refused(
                HTTPStatus.TOO_MANY_REQUESTS, "too many requests; wait", {"Retry-After": str(int(wait) + 1)}
            )
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class OneLength:
    """Refuses a request that says its length in two ways, or in one that its version of HTTP does not have.

    The server reads one of them and a proxy in front may read the other: what follows would be a request for one and
    part of this one for the other, sent with the next caller's secret.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        names = {name for name, _ in scope["headers"]} if scope["type"] == "http" else set[bytes]()
        if b"transfer-encoding" in names and (b"content-length" in names or scope["http_version"] == "1.0"):
            await refused(HTTPStatus.BAD_REQUEST, "say the length of a request once", {"Connection": "close"})(
                scope, receive, send
            )
        else:
            await self._app(scope, receive, send)


class ConcurrencyLimit:
    """Refuses requests while too many are being answered. One principal may have half of the places."""

    def __init__(self, app: ASGIApp, requests_max: int) -> None:
        self._app = app
        self._free = requests_max
        self._share = max(1, requests_max // 2)
        self._taken: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        principal = principal_of(scope)
        name = "" if principal is None else principal.client_id
        if not self._free or (name and self._taken[name] >= self._share):
            await refused(HTTPStatus.SERVICE_UNAVAILABLE, "the server is busy; wait", {"Retry-After": "1"})(
                scope, receive, send
            )
            return
        self._free -= 1
        self._taken[name] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._free += 1
            self._taken -= Counter([name])  # forgets a name that has none


class ClientLeftError(Exception):
    """The client went away before its request was complete."""


class BodyTimeLimit:
    """Refuses a request whose body does not arrive in time, and drops one whose client leaves before."""

    def __init__(self, app: ASGIApp, seconds_max: float) -> None:
        self._app = app
        self._seconds_max = seconds_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        deadline = anyio.current_time() + self._seconds_max
        is_complete = scope["type"] != "http"
        is_late = False

        async def receive_in_time() -> Message:
            nonlocal is_complete, is_late
            if is_complete:
                return await receive()
            is_late = True
            with anyio.fail_after(deadline - anyio.current_time()):
                message = await receive()
            is_late = False
            if message["type"] == "http.disconnect":
                raise ClientLeftError  # the SDK would log it as a defect
            is_complete = not message.get("more_body", False)
            return message

        try:
            await self._app(scope, receive_in_time, send)
        except ClientLeftError:
            return
        except TimeoutError:
            if not is_late:
                raise
            await refused(HTTPStatus.REQUEST_TIMEOUT, "the body did not arrive in time", {"Connection": "close"})(
                scope, receive, send
            )


class LargeBodies:
    """Lets few requests with large bodies be answered at a time: parsed, one can take thirty times its bytes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._places = anyio.Semaphore(LARGE_BODIES_AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; it waits for its place when its body is there."""
        size = 0
        has_place = False

        async def receive_and_wait() -> Message:
            nonlocal size, has_place
            message = await receive()
            size += len(message.get("body", b""))
            if size > LARGE_BODY_BYTES and not has_place and not message.get("more_body", False):
                await self._places.acquire()
                has_place = True
            return message

        try:
            await self._app(scope, receive_and_wait, send)
        finally:
            if has_place:
                self._places.release()


class PatientProtocol(H11Protocol):
    """uvicorn's HTTP/1.1, closing the connection when a request's head, or the reading of an answer, takes too long.

    uvicorn itself times only the pause between requests, and any byte ends that. And where as many connections are open
    as may be, it refuses every request: here the one that has asked for nothing for longest makes room for a new one.
    """

    header_seconds_max: float
    answer_seconds_max: float
    idle: "dict[PatientProtocol, None]"
    """The connections with no request to answer, those that wait for longest first."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency and self.idle:
            oldest = next(iter(self.idle))
            oldest.transport.abort()
            self.idle.pop(oldest)
            self.connections.discard(oldest)  # now, so that what comes over the new one is served
        self.idle[self] = None
        self._waiting: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Begin to wait for the rest of a request's head when its first byte is there, and stop when all is."""
        if self._is_between_requests():
            self._wait()
        super().data_received(data)
        if not self._is_between_requests():
            self._stop_waiting()
            self.idle.pop(self, None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self.idle.pop(self, None)
        self._stop_waiting()
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Begin to wait for the client to read."""
        super().pause_writing()
        self._unread = self.loop.call_later(self.answer_seconds_max, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop waiting for the client to read."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def on_response_complete(self) -> None:
        """Wait for what was sent of a next request already; uvicorn itself waits for its first byte."""
        super().on_response_complete()
        if self._is_between_requests():
            self.idle[self] = None
            if self.conn.trailing_data[0]:
                self._wait()

    def _is_between_requests(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None at first, whatever its annotation says
        return cycle is None or cycle.response_complete

    def _wait(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(self.header_seconds_max, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if not self.transport.is_closing():
            self.transport.close()


def patient_protocol(*, header_seconds_max: float, answer_seconds_max: float) -> type[PatientProtocol]:
    """Return the protocol with its times; uvicorn makes the instances."""
    members: dict[str, object] = {
        "header_seconds_max": header_seconds_max,
        "answer_seconds_max": answer_seconds_max,
        "idle": {},
    }
    return type("PatientProtocol", (PatientProtocol,), members)


def refused(status: HTTPStatus, reason: str, headers: Mapping[str, str] | None = None) -> ASGIApp:
    """Return the answer to a request that is not served."""
    return PlainTextResponse(reason + "\n", status_code=status, headers=dict(headers or {}))
