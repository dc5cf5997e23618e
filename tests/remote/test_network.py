"""Names, pages, certificates and proxies: what may reach the server from where."""

import asyncio
import json
import socket
import ssl
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Final, cast

import httpx2
import pytest

from cavemem_mcp import InvalidArgumentsError, open_memory
from cavemem_mcp.http import listener, serve_http
from cavemem_mcp.settings import HttpSettings
from tests.remote.certificates import Certificate, make_certificate
from tests.remote.server import RemoteServer, TokenFile, bearer, remote_server
from tests.server.processes import command, ping

ORIGIN: Final = "https://app.example"


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[RemoteServer, str]]:
    """Return a server with a public name, one page that may call, and a trusted proxy; and a secret that it admits."""
    folder = tmp_path_factory.mktemp("named")
    tokens = TokenFile(folder / "tokens.toml")
    secret = tokens.add("alice")
    with remote_server(
        folder / "home",
        "--auth-tokens",
        str(tokens.path),
        "--allowed-host=memory.example, other.example:8443",
        f"--allowed-origin={ORIGIN}",
        "--forwarded-allow-ips=127.0.0.1",
    ) as server:
        yield server, secret


@pytest.mark.parametrize(
    "host", ["memory.example", "memory.example:443", "other.example:8443", "127.0.0.1", "localhost:1"]
)
def test_a_name_that_is_allowed_is_served(named: tuple[RemoteServer, str], host: str) -> None:
    server, secret = named
    assert server.post(secret, ping(1), {"Host": host}).status_code == 200


@pytest.mark.parametrize("options", [(), ("--allowed-host=memory.example",)])
def test_a_public_name_without_a_check_of_callers_is_warned_of(tmp_path: Path, options: tuple[str, ...]) -> None:
    with remote_server(tmp_path / "home", *options) as server:
        assert ("can read and change every memory" in server.errors()) is bool(options)


@pytest.mark.parametrize("host", ["evil.example", "other.example", "memory.example.evil.example", "192.0.2.1", ""])
def test_another_name_is_refused_before_anything_else_with_the_flag_that_allows_it(
    named: tuple[RemoteServer, str], host: str
) -> None:
    server, secret = named
    for caller in (secret, "guess"):
        response = server.post(caller, ping(1), {"Host": host})
        assert response.status_code == 421
        assert "--allowed-host" in response.text
    assert "evil.example" not in server.errors()


def test_another_origin_is_refused_with_the_flag_that_allows_it(named: tuple[RemoteServer, str]) -> None:
    server, secret = named
    for origin in ("https://evil.example", "null", "http://app.example", f"{ORIGIN}.evil.example"):
        response = server.post(secret, ping(1), {"Origin": origin})
        assert response.status_code == 403
        assert "--allowed-origin" in response.text
        assert "access-control-allow-origin" not in response.headers


def test_a_page_that_is_allowed_can_ask_and_read(named: tuple[RemoteServer, str]) -> None:
    server, secret = named
    with server.client() as client:
        asked = client.options(
            "/mcp",
            headers={
                "Origin": ORIGIN,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization, content-type, mcp-protocol-version, mcp-method",
            },
        )
    assert asked.status_code == 200
    assert asked.headers["access-control-allow-origin"] == ORIGIN
    answered = server.post(secret, ping(1), {"Origin": ORIGIN})
    assert answered.status_code == 200
    assert answered.headers["access-control-allow-origin"] == ORIGIN
    assert "WWW-Authenticate" in answered.headers["access-control-expose-headers"]
    assert "access-control-allow-credentials" not in answered.headers
    refused = server.post("guess", ping(1), {"Origin": ORIGIN})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == ORIGIN


def test_a_page_may_not_ask_for_other_headers(named: tuple[RemoteServer, str]) -> None:
    server, _ = named
    with server.client() as client:
        asked = client.options(
            "/mcp",
            headers={
                "Origin": ORIGIN,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "cookie",
            },
        )
    assert asked.status_code == 400


@pytest.mark.parametrize(("forwarded", "scheme"), [({"X-Forwarded-Proto": "https"}, "https"), ({}, "http")])
def test_a_trusted_proxy_says_how_the_client_came(
    named: tuple[RemoteServer, str], forwarded: dict[str, str], scheme: str
) -> None:
    server, secret = named
    with server.client(secret, follow_redirects=False) as client:
        moved = client.post("/mcp/", headers={"Host": "memory.example", **forwarded})
    assert moved.headers["location"] == f"{scheme}://memory.example/mcp"


def test_a_proxy_that_is_not_trusted_says_nothing(shared: tuple[RemoteServer, dict[str, str]]) -> None:
    server, secrets = shared
    with server.client(secrets["alice"], follow_redirects=False) as client:
        moved = client.post("/mcp/", headers={"X-Forwarded-Proto": "https"})
    assert moved.headers["location"].startswith("http://")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def test_a_certificate_makes_it_https(tmp_path: Path, tokens: TokenFile, certificate: Certificate) -> None:
    with remote_server(
        tmp_path / "home",
        *("--auth-tokens", str(tokens.path), "--tls-cert", str(certificate.chain), "--tls-key", str(certificate.key)),
    ) as server:
        assert server.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(certificate.chain))
        with httpx2.Client(verify=trusted, trust_env=False, timeout=20) as client:
            answered = client.post(
                f"https://localhost:{server.port}/mcp",
                content=json.dumps(ping(1)),
                headers={
                    **bearer(tokens.secrets["alice"]),
                    "Content-Type": "application/json",
                    "Accept": "application/json",
                    "Origin": f"https://localhost:{server.port}",
                },
            )
        assert answered.status_code == 200


@pytest.mark.parametrize("fault", ["missing", "garbage", "other_key", "key_with_password"])
def test_a_certificate_that_cannot_be_used_is_refused(tmp_path: Path, certificate: Certificate, fault: str) -> None:
    chain, key = certificate.chain, certificate.key
    if fault == "missing":
        chain = tmp_path / "missing.pem"
    elif fault == "garbage":
        chain = tmp_path / "garbage.pem"
        chain.write_text("garbage")
    elif fault == "other_key":
        (tmp_path / "other").mkdir()
        key = make_certificate(tmp_path / "other").key
    else:
        key = certificate.key_with_password
    with pytest.raises(InvalidArgumentsError, match="--tls-cert and --tls-key: cannot be used"):
        serve_http(
            tmp_path, open_memory, HttpSettings(port=0, tls_cert=str(chain), tls_key=str(key), log_level="warning")
        )


def test_every_address_can_be_served_to_those_who_say_who_they_are(tmp_path: Path, tokens: TokenFile) -> None:
    with remote_server(tmp_path / "home", "--auth-tokens", str(tokens.path), "--host", "0.0.0.0") as server:
        assert "tokens travel unencrypted" in server.errors()
        local = {"Host": f"127.0.0.1:{server.port}"}
        url = f"http://127.0.0.1:{server.port}"
        with httpx2.Client(base_url=url, trust_env=False, headers=bearer(tokens.secrets["alice"])) as client:
            answered = client.post("/mcp", json=ping(1), headers={"Accept": "application/json", **local})
            assert answered.status_code == 200
            assert client.post("/mcp", json=ping(1), headers={"Host": "0.0.0.0"}).status_code == 421


async def test_answers_do_not_wait_for_the_acknowledgement_of_their_head() -> None:
    """Head and body are two writes; Nagle's algorithm would keep the second back for 40 ms."""
    loop = asyncio.get_running_loop()
    accepted: asyncio.Future[int] = loop.create_future()

    class Protocol(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.set_result(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            cast("asyncio.Transport", transport).close()

    with listener(HttpSettings(port=0)) as listening:
        async with await loop.create_server(Protocol, sock=listening):
            with socket.create_connection(listening.getsockname()):
                assert await asyncio.wait_for(accepted, 10)


def test_variables_serve_like_flags(tmp_path: Path, tokens: TokenFile) -> None:
    settings = {"CAVEMAN_AUTH_TOKENS": str(tokens.path), "CAVEMAN_TRANSPORT": "streamable-http"}
    with remote_server(tmp_path / "home", settings=settings) as server:
        assert server.post(None, ping(1)).status_code == 401


def test_over_stdio_the_variables_of_the_http_server_do_not_matter(tmp_path: Path) -> None:
    environment = {"CAVEMAN_HOME": str(tmp_path), "CAVEMAN_MAX_REQUESTS": "senseless", "PATH": "/usr/bin"}
    ended = subprocess.run(
        command("mcp"), input=json.dumps(ping(1)).encode() + b"\n", capture_output=True, check=True, env=environment
    )
    assert json.loads(ended.stdout)["id"] == 1
