"""How the server is reached over stdio, and how a server of either kind ends. Owns no tool."""

import asyncio
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from cavemem_mcp.lines import LINE_BYTES_MAX, claim_stdio, not_blocking, read_lines, write_line
from cavemem_mcp.server import CaveServer, build_server
from cavemem_mcp.service import Cavemem
from cavemem_mcp.stores import MemoryOnDemand

IN_FLIGHT_MAX: Final = 64
"""Requests over stdio that may wait for their answer; more are not read yet."""
SETTLE_SECONDS_MAX: Final = 2
"""How long an ending server lets the calls in progress be answered."""
FLUSH_SECONDS_MAX: Final = 0.5
"""How long an ending server waits for its client to read the last answers."""
END_SECONDS_MAX: Final = 4.5
"""When an ending server stops waiting for anything; what is not committed by then has not happened."""


def serve_stdio(open_memory: Callable[[], Cavemem]) -> int:
    """Serve one client over stdin and stdout until either ends or a signal arrives; return the exit code.

    The process is expected to end after that: both descriptors stay diverted.
    """
    incoming, outgoing = claim_stdio()  # before the event loop opens descriptors of its own
    log_to_stderr()
    memory = MemoryOnDemand(open_memory)
    return asyncio.run(_StdioSession(build_server(memory), memory).run(incoming, outgoing))


class Ending:
    """The end of a server: the first signal asks for it, a second forces it, and whatever hangs cannot prevent it."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.exit_code = 0

    def begin(self) -> None:
        """Begin to end, for a reason that is no failure."""
        if not self.requested.is_set():
            self.requested.set()
            watchdog = threading.Timer(END_SECONDS_MAX, lambda: os._exit(self.exit_code))
            watchdog.daemon = True
            watchdog.start()

    def handle_signal(self, number: int) -> None:
        """Begin to end because of a signal, or end at once if one came before."""
        if self.exit_code:
            os._exit(128 + number)
        self.exit_code = 128 + number
        self.begin()


class InvalidMessageError(Exception):
    """A line that is no JSON-RPC message, with the answer that it gets."""

    def __init__(self, code: int, message: str, *, id: str | int | None = None) -> None:
        super().__init__(message)
        self.answer = JSONRPCError(jsonrpc="2.0", id=id, error=ErrorData(code=code, message=message))


def parse_message(line: bytes | None) -> JSONRPCMessage:
    """Parse one line; None is one that was too long to keep.

    Raises:
        InvalidMessageError: It is not one JSON-RPC message.
    """
    if line is None:
        raise InvalidMessageError(INVALID_REQUEST, f"Invalid request: a line is longer than {LINE_BYTES_MAX} bytes")
    with suppress(ValidationError):
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        if isinstance(message, JSONRPCRequest):
            return message
    return _parse_tolerantly(line)


def _parse_tolerantly(line: bytes) -> JSONRPCMessage:
    """Parse what the fast parser refuses or misreads.

    It refuses half of a surrogate pair, which is let through here to where the caller is told which argument holds it,
    and takes a request with an odd id for a notification and one with an error for a response: neither gets an answer.
    """
    try:
        value: object = json.loads(line.decode("utf-8-sig", "surrogatepass"))  # bytes would also be read as UTF-16
    except (ValueError, RecursionError):
        raise InvalidMessageError(PARSE_ERROR, "Parse error: each line must be one JSON-RPC message") from None
    if not isinstance(value, dict):
        raise InvalidMessageError(INVALID_REQUEST, "Invalid request: each line must be one object, not a batch")
    envelope = cast("dict[str, object]", value)
    id = envelope.get("id")
    refusal = InvalidMessageError(
        INVALID_REQUEST,
        "Invalid request: not a JSON-RPC 2.0 request, notification or response",
        id=id if isinstance(id, str | int) and not isinstance(id, bool) else None,
    )
    try:
        message = jsonrpc_message_adapter.validate_python(envelope, by_name=False)
    except ValidationError:
        raise refusal from None
    if not isinstance(message, JSONRPCRequest) and envelope.keys() >= {"id", "method"}:
        raise refusal
    return message


def encode_message(message: JSONRPCMessage) -> bytes:
    """Encode one line; what UTF-8 cannot say, which only an id or a name of the client's can be, stays escaped."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    except ValueError:
        return json.dumps(message.model_dump(by_alias=True, exclude_unset=True), separators=(",", ":")).encode()


class _Refusal(SessionMessage):
    """The transport's own answer, to what the server never saw."""


class _InFlight:
    """How many requests wait for their answer."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = asyncio.Event()

    def begin(self) -> None:
        self._count += 1

    def end(self) -> None:
        self._count -= 1
        self._changed.set()

    async def wait_until_at_most(self, count: int) -> None:
        while self._count > count:
            self._changed.clear()
            await self._changed.wait()


class _StdioSession:
    """One client over stdin and stdout.

    The SDK's own transport drops what it cannot parse without an answer, abandons requests when stdin ends, and waits
    in threads that signals do not reach.
    """

    def __init__(self, server: CaveServer, memory: MemoryOnDemand) -> None:
        self._server = server
        self._memory = memory
        self._ending = Ending()
        self._in_flight = _InFlight()
        self._written = asyncio.Event()

    async def run(self, incoming: int, outgoing: int) -> int:
        """Serve over two descriptors until the end, and return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ending.handle_signal, number)
        to_server, from_client = anyio.create_memory_object_stream[SessionMessage | Exception]()
        to_client, from_server = anyio.create_memory_object_stream[SessionMessage]()
        with not_blocking(outgoing):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._read, incoming, to_server, to_client.clone())
                tasks.start_soon(self._write, outgoing, from_server)
                await self._server.serve(from_client, to_client)
                with anyio.move_on_after(FLUSH_SECONDS_MAX):
                    await self._written.wait()
                tasks.cancel_scope.cancel()
        return self._ending.exit_code

    async def _read(
        self,
        descriptor: int,
        to_server: MemoryObjectSendStream[SessionMessage | Exception],
        to_client: MemoryObjectSendStream[SessionMessage],
    ) -> None:
        """Pass messages on until the end is near; then let those in progress finish before the server sees the end."""
        async with to_server, to_client:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._read_messages, descriptor, to_server, to_client)
                await self._ending.requested.wait()
                tasks.cancel_scope.cancel()
            self._memory.stop_waiting()
            os.close(descriptor)  # a client that goes on sending notices
            with anyio.move_on_after(SETTLE_SECONDS_MAX):
                await self._in_flight.wait_until_at_most(0)

    async def _read_messages(
        self,
        descriptor: int,
        to_server: MemoryObjectSendStream[SessionMessage | Exception],
        to_client: MemoryObjectSendStream[SessionMessage],
    ) -> None:
        with suppress(anyio.BrokenResourceError):  # the client no longer reads
            async for line in read_lines(descriptor):
                if line is not None and not line.strip():
                    continue
                await self._in_flight.wait_until_at_most(IN_FLIGHT_MAX - 1)
                try:
                    message = parse_message(line)
                except InvalidMessageError as error:
                    await to_client.send(_Refusal(error.answer))
                    continue
                with anyio.CancelScope(shield=True):  # once counted it is passed on, or the end would wait for it
                    await to_server.send(SessionMessage(message, self._expectation(message)))
        self._ending.begin()

    def _expectation(self, message: JSONRPCMessage) -> ServerMessageMetadata | None:
        """Count a request until it is answered, or was cancelled and never will be."""
        if not isinstance(message, JSONRPCRequest):
            return None
        self._in_flight.begin()

        async def on_request_unanswered() -> None:
            self._in_flight.end()

        return ServerMessageMetadata(on_request_unanswered=on_request_unanswered)

    async def _write(self, descriptor: int, from_server: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async with from_server:
            with suppress(OSError):  # the client no longer reads
                async for item in from_server:
                    await write_line(descriptor, encode_message(item.message))
                    if isinstance(item.message, JSONRPCResponse | JSONRPCError) and not isinstance(item, _Refusal):
                        self._in_flight.end()
        self._written.set()
        self._ending.begin()


def log_to_stderr() -> None:
    """Send logs to stderr, where nothing has configured logging yet; the SDK would do so at a chattier level."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def say(message: str) -> None:
    """Write a line to stderr, as long as somebody reads it."""
    with suppress(OSError):
        sys.stderr.write(message + "\n")
        sys.stderr.flush()
