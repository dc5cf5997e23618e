"""The server over streamable HTTP: its application, assembled from the SDK's parts and ours, and uvicorn around it."""

import asyncio
import ipaddress
import json
import logging
import resource
import signal
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from types import FrameType
from typing import Any, Final, cast

import anyio
import uvicorn
from mcp.server.auth.routes import create_protected_resource_routes
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types import JSONRPCRequest, JSONRPCResponse
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cavemem_mcp.auth import SCOPES, TokenFileVerifier, principal_of
from cavemem_mcp.errors import InvalidArgumentsError, StoreError
from cavemem_mcp.limits import (
    BodyTimeLimit,
    ConcurrencyLimit,
    LargeBodies,
    OneLength,
    RateLimit,
    RequestRate,
    patient_protocol,
    refused,
)
from cavemem_mcp.oauth import JwtVerifier
from cavemem_mcp.server import TOOLS, CaveServer, build_server
from cavemem_mcp.service import Cavemem
from cavemem_mcp.settings import HttpSettings
from cavemem_mcp.stores import StorePool, StoresBusyError
from cavemem_mcp.telemetry import CallTelemetry, RequestLog, observe_stores, request_lines
from cavemem_mcp.transport import (
    SETTLE_SECONDS_MAX,
    Ending,
    InvalidMessageError,
    encode_message,
    log_to_stderr,
    parse_message,
    say,
)

HTTP_PATH: Final = "/mcp"
HEALTH_PATHS: Final = ("/healthz", "/readyz")
READY_SECONDS_MIN: Final = 1
"""How long an answer of `/readyz` stands: it writes to the disk, and anybody may ask."""
FILES_OPEN_MAX: Final = 16_384
HEADERS_ALLOWED: Final = [
    "accept",
    "authorization",
    "content-type",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
]
HEADERS_EXPOSED: Final = ["Mcp-Session-Id", "Retry-After", "WWW-Authenticate"]

logger = logging.getLogger(__name__)

Verifier = TokenFileVerifier | JwtVerifier


def serve_http(home: Path, open_memory: Callable[[Path], Cavemem], settings: HttpSettings) -> int:
    """Serve clients over streamable HTTP at `/mcp` until a signal arrives; return the exit code.

    Args:
        home: Holds the stores: `mem`, and `stores/<store>/mem` for callers who say who they are.
        open_memory: Opens the memory in a folder.
        settings: The address (port 0 takes a free one; the one served is printed on stderr), who may come in, limits.

    Raises:
        InvalidArgumentsError: A setting cannot be followed.
    """
    log_to_stderr()
    _allow_many_files()
    logging.getLogger("mcp.server.transport_security").setLevel(logging.ERROR)  # it would log what clients send
    verifier = _verifier(settings)
    if verifier is None and settings.allowed_host:
        logger.warning(
            "--allowed-host without --auth-tokens or --oauth-issuer: whoever reaches this server by that name, as by "
            "a proxy, can read and change every memory"
        )
    with listener(settings) as listening, request_lines(is_on=settings.log_level == "info"):
        pool = StorePool(
            home,
            open_memory,
            open_max=settings.max_open_stores,
            idle_seconds_max=settings.store_idle_timeout,
            keeps_default=verifier is None,
        )
        observe_stores(pool.sizes)
        address = listening.getsockname()[0]
        app = build_app(pool, settings, verifier, names=[settings.host, address])
        return asyncio.run(_serve(_config(app, settings), listening, pool, verifier))


def build_app(pool: StorePool, settings: HttpSettings, verifier: Verifier | None, *, names: list[str]) -> ASGIApp:
    """Assemble the application: the SDK's, with limits around its endpoint and checks around everything.

    Args:
        pool: The stores.
        settings: The limits, and which names and origins are ours.
        verifier: Tells who calls; None where nobody needs to say so.
        names: Names and addresses, besides loopback's, under which clients may reach the server.
    """
    server = build_server(
        pool,
        auth=None if verifier is None else verifier.settings(),
        token_verifier=verifier,
        middleware=[CallTelemetry(tool.name for tool in TOOLS)],
    )
    security = _security(settings, names)
    app = server.streamable_http_app(
        streamable_http_path=HTTP_PATH,
        json_response=True,
        stateless_http=True,
        max_request_body_size=settings.max_body_bytes,
        transport_security=security,
    )
    _limit(app, server, pool, settings, needs_principal=verifier is not None)
    if isinstance(verifier, JwtVerifier):
        auth = verifier.settings()
        assert auth.resource_server_url is not None
        app.router.routes[:0] = create_protected_resource_routes(
            auth.resource_server_url, [auth.issuer_url], SCOPES, resource_name="Cave Memory"
        )
    app.router.routes.extend([Route("/healthz", _healthz), Route("/readyz", _Readiness(pool).answer)])
    checked: ASGIApp = app
    if settings.allowed_origin:
        checked = CORSMiddleware(
            app,
            allow_origins=_listed(settings.allowed_origin),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=HEADERS_ALLOWED,
            expose_headers=HEADERS_EXPOSED,
        )
    return RequestLog(OneLength(_HostCheck(checked, security)))


def _limit(
    app: Starlette, server: CaveServer, pool: StorePool, settings: HttpSettings, *, needs_principal: bool
) -> None:
    """Put the limits around the SDK's endpoint, where it is known already who calls and nothing of the body is read."""
    endpoint = next(route for route in app.routes if isinstance(route, Route) and route.path == HTTP_PATH)
    leased = _StoreLease(_answering_broken_text(endpoint.app, server), pool, needs_principal=needs_principal)
    timed = BodyTimeLimit(LargeBodies(leased), settings.body_timeout)
    rate = RequestRate(per_second=settings.requests_per_second, burst=settings.request_burst)
    endpoint.app = RateLimit(ConcurrencyLimit(timed, settings.max_requests), rate)


class _StoreLease:
    """Keeps the store of who calls open while a request is served."""

    def __init__(self, app: ASGIApp, pool: StorePool, *, needs_principal: bool) -> None:
        self._app = app
        self._pool = pool
        self._needs_principal = needs_principal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        principal = principal_of(scope)
        if principal is None and self._needs_principal:
            await self._app(scope, receive, send)  # which refuses it
            return
        if scope["method"] != "POST":  # a stream from GET would never carry anything, and keep a place for ever
            await refused(HTTPStatus.METHOD_NOT_ALLOWED, "send messages with POST", {"Allow": "POST"})(
                scope, receive, send
            )
            return
        try:
            async with self._pool.lease(None if principal is None else principal.store):
                await self._app(scope, receive, send)
        except StoresBusyError:
            await refused(HTTPStatus.SERVICE_UNAVAILABLE, "the server is busy; wait", {"Retry-After": "1"})(
                scope, receive, send
            )


class _HostCheck:
    """Refuses what comes under another name or from another page, with the SDK's check and words of ours."""

    REASONS: Final = {
        HTTPStatus.MISDIRECTED_REQUEST: "this host name is not served here; allow it with --allowed-host",
        HTTPStatus.FORBIDDEN: "this origin may not call; allow it with --allowed-origin",
    }

    def __init__(self, app: ASGIApp, security: TransportSecuritySettings) -> None:
        self._app = app
        self._check = TransportSecurityMiddleware(security)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in HEALTH_PATHS:
            refusal = await self._check.validate_request(Request(scope))
            if refusal is not None:
                status = HTTPStatus(refusal.status_code)
                await refused(status, self.REASONS[status])(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def _healthz(_: Request) -> Response:
    return PlainTextResponse("ok\n")


class _Readiness:
    """Whether the default store opens and its disk can be written to."""

    def __init__(self, pool: StorePool) -> None:
        self._pool = pool
        self._checking = anyio.Lock()
        self._checked_at = -float(READY_SECONDS_MIN)
        self._is_ready = False

    async def answer(self, _: Request) -> Response:
        """Answer 200 or 503, and no more: the log says why."""
        async with self._checking:
            if anyio.current_time() - self._checked_at >= READY_SECONDS_MIN:
                self._is_ready = await self._check()
                self._checked_at = anyio.current_time()
        if self._is_ready:
            return PlainTextResponse("ready\n")
        return PlainTextResponse("not ready\n", HTTPStatus.SERVICE_UNAVAILABLE)

    async def _check(self) -> bool:
        try:
            await self._pool.check_ready()
        except StoreError as error:
            logger.warning("not ready: %s", error.message)
            return False
        return True


def _verifier(settings: HttpSettings) -> Verifier | None:
    if settings.auth_tokens:
        return TokenFileVerifier(Path(settings.auth_tokens))
    if settings.oauth_issuer:
        return JwtVerifier(issuer=settings.oauth_issuer, audience=settings.oauth_audience, keys=settings.oauth_jwks)
    return None


def _security(settings: HttpSettings, names: list[str]) -> TransportSecuritySettings:
    hosts = {"127.0.0.1", "localhost", "[::1]", *map(_bracketed, names)} - {"0.0.0.0", "[::]"}  # noqa: S104  # no names
    scheme = "https" if settings.tls_cert else "http"
    origins = [f"{scheme}://{name}{port}" for name in sorted(hosts) for port in ("", ":*")]
    hosts.update(_listed(settings.allowed_host))
    return TransportSecuritySettings(
        allowed_hosts=[*sorted(hosts), *(f"{name}:*" for name in sorted(hosts))],
        allowed_origins=[*origins, *_listed(settings.allowed_origin)],
    )


def _config(app: ASGIApp, settings: HttpSettings) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        access_log=False,
        forwarded_allow_ips=settings.forwarded_allow_ips or None,
        http=patient_protocol(header_seconds_max=settings.header_timeout, answer_seconds_max=settings.body_timeout),
        limit_concurrency=settings.max_connections,
        log_config=None,
        log_level=logging.WARNING,
        proxy_headers=bool(settings.forwarded_allow_ips),
        server_header=False,
        ssl_certfile=settings.tls_cert or None,
        ssl_keyfile=settings.tls_key or None,
        ssl_keyfile_password="-",  # noqa: S106  # refuses a key that has one, where OpenSSL would ask the terminal
        timeout_graceful_shutdown=SETTLE_SECONDS_MAX,
        timeout_keep_alive=settings.idle_timeout,
        ws="none",
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise InvalidArgumentsError(
            f"--tls-cert and --tls-key: cannot be used ({error.strerror or type(error).__name__}); "
            "give a certificate and its key in PEM, without a password"
        ) from error
    return config


async def _serve(config: uvicorn.Config, listening: socket.socket, pool: StorePool, verifier: Verifier | None) -> int:
    ending = Ending()
    address, port = listening.getsockname()[:2]
    url = f"{'https' if config.is_ssl else 'http'}://{_bracketed(address)}:{port}{HTTP_PATH}"

    class HttpServer(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            ending.handle_signal(sig)
            self.should_exit = True

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            say(f"cavemem: serving MCP at {url}")

    async def stop_waiting_at_the_end() -> None:
        await ending.requested.wait()
        pool.stop_waiting()

    if isinstance(verifier, TokenFileVerifier):
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, verifier.reload)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pool.close_idle)
        tasks.start_soon(stop_waiting_at_the_end)
        await HttpServer(config).serve(sockets=[listening])
        tasks.cancel_scope.cancel()
    return ending.exit_code


def _answering_broken_text(app: ASGIApp, server: CaveServer) -> ASGIApp:
    """Answer a call whose arguments hold half of a surrogate pair: the SDK's older path has only a 400 for it."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        chunks: list[bytes] = []
        is_answered = False

        async def receive_and_keep() -> Message:
            message = await receive()
            chunks.append(message.get("body", b""))
            return message

        async def send_or_replace(message: Message) -> None:
            nonlocal is_answered
            if message["type"] == "http.response.start" and message["status"] == HTTPStatus.BAD_REQUEST:
                body = await _answer_to_broken_text(server, b"".join(chunks))
                if body is not None:
                    is_answered = True
                    await Response(body, media_type="application/json")(scope, receive, send)
            if not is_answered:
                await send(message)

        await app(scope, receive_and_keep, send_or_replace)

    return answer


async def _answer_to_broken_text(server: CaveServer, request: bytes) -> bytes | None:
    """Return the answer to a tool call that holds half of a surrogate pair, and None for any other request."""
    try:
        message = parse_message(request)
    except InvalidMessageError:
        return None
    if not isinstance(message, JSONRPCRequest) or message.method != "tools/call" or message.params is None:
        return None
    name, arguments = message.params.get("name"), message.params.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    try:
        json.dumps(arguments, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        with suppress(MCPError):
            refused = await server.call_tool(name, cast("dict[str, Any]", arguments))
            result = refused.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"result_type"})
            return encode_message(JSONRPCResponse(jsonrpc="2.0", id=message.id, result=result))
    return None


def listener(settings: HttpSettings) -> socket.socket:
    """Listen on the address that is set, which must be a loopback one where callers need not say who they are.

    Raises:
        InvalidArgumentsError: It is not, or it cannot be had.
    """
    host, port = settings.host, settings.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise InvalidArgumentsError(f"host: {host} is not a known name or address; use 127.0.0.1") from error
    is_loopback = all(ipaddress.ip_address(str(address[0])).is_loopback for *_, address in found)
    if not is_loopback and not settings.has_authentication:
        raise InvalidArgumentsError(
            f"host: {host} can be reached from other machines, and whoever reaches it could read and change every "
            "memory; use 127.0.0.1, or say who may come in with --auth-tokens or --oauth-issuer"
        )
    if not is_loopback and not settings.tls_cert:
        logger.warning("tokens travel unencrypted, unless a proxy in front ends TLS; to do so here, set --tls-cert")
    family, _, _, _, address = min(found)  # IPv4 first, where a name has both
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # else asyncio leaves Nagle's delay on
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()
    except OSError as error:
        listening.close()
        raise InvalidArgumentsError(
            f"port: cannot listen on {host} port {port}: {error.strerror}; choose another port"
        ) from error
    return listening


def _allow_many_files() -> None:
    """Raise the number of open files, which is often 1024 at first: many connections and stores need more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_OPEN_MAX if hard == resource.RLIM_INFINITY else min(FILES_OPEN_MAX, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _listed(setting: str) -> list[str]:
    return [item for part in setting.split(",") if (item := part.strip())]
