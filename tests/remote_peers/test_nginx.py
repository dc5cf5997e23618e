"""Real nginx in front of the server, as the README configures it: with TLS, and with two servers behind it."""

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.remote.certificates import Certificate, make_certificate
from tests.remote.server import HEADERS, SECONDS_MAX, RemoteServer, TokenFile, bearer, poll, remote_server
from tests.server.answers import ERAS, Era, answer
from tests.server.processes import ping

README = Path(__file__).parent.parent.parent / "README.md"


@pytest.fixture(scope="session")
def nginx() -> str:
    """Return the program, installing it where that is possible."""
    if shutil.which("nginx") is None:
        if shutil.which("apt-get") is None or os.geteuid():
            pytest.skip("nginx is not installed, and apt-get is missing or needs root")
        for arguments in (["update"], ["install", "-y", "--no-install-recommends", "nginx-light"]):
            done = subprocess.run(["apt-get", *arguments], capture_output=True, text=True, check=False, timeout=300)
            assert done.returncode == 0, done.stdout + done.stderr
    found = shutil.which("nginx")
    assert found is not None
    return found


class Proxied:
    """Two servers behind one address, and a secret that they admit."""

    def __init__(self, url: str, secret: str, servers: list[RemoteServer], certificate: Certificate) -> None:
        self.url = url
        self.secret = secret
        self.servers = servers
        self.trust = ssl.create_default_context(cafile=str(certificate.chain))

    def client(self, **headers: str) -> httpx2.Client:
        return httpx2.Client(
            verify=self.trust,
            trust_env=False,
            timeout=SECONDS_MAX,
            headers={**HEADERS, **bearer(self.secret), **headers},
        )


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory, nginx: str) -> Generator[Proxied]:
    folder = tmp_path_factory.mktemp("nginx")
    certificate = make_certificate(folder)
    tokens = TokenFile(folder / "tokens.toml")
    secret = tokens.add("alice")
    with ExitStack() as stack:
        servers = [
            stack.enter_context(
                remote_server(
                    folder / "home",
                    *("--auth-tokens", str(tokens.path), "--allowed-host", "localhost"),
                    *("--forwarded-allow-ips", "127.0.0.1"),
                )
            )
            for _ in range(2)
        ]
        port = stack.enter_context(_nginx(nginx, folder, certificate, servers))
        yield Proxied(f"https://localhost:{port}/mcp", secret, servers, certificate)


@contextmanager
def _nginx(program: str, folder: Path, certificate: Certificate, servers: list[RemoteServer]) -> Generator[int]:
    found = re.search(r"^```nginx\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    site = found[1]
    for example, here in (
        ("server 127.0.0.1:8765;", "".join(f"server 127.0.0.1:{server.port};" for server in servers)),
        ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        ("/etc/ssl/memory.example.pem", str(certificate.chain)),
        ("/etc/ssl/memory.example.key", str(certificate.key)),
    ):
        assert example in site
        site = site.replace(example, here)
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "" if os.geteuid() else "user root;"
    (folder / "nginx.conf").write_text(
        f"{user} daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; events {{}} "
        f"http {{ access_log off; {temporary}\n{site} }}"
    )
    process = subprocess.Popen(
        [program, "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")], stderr=subprocess.PIPE, text=True
    )
    try:
        poll(lambda: process.poll() is not None or _listens(port))
        assert process.poll() is None, process.communicate()[1]
        yield port
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS_MAX)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_does_not_notice_the_two_servers(proxied: Proxied, era: Era) -> None:
    async with (
        httpx2.AsyncClient(
            verify=proxied.trust, trust_env=False, timeout=SECONDS_MAX, headers=bearer(proxied.secret)
        ) as http,
        Client(streamable_http_client(proxied.url, http_client=http), mode=era) as client,
    ):
        for number in range(10):
            stored = await answer(
                client, "remember", {"text": f"Proxied fact {number} of {era} about topic{era}{number}"}
            )
            found = await answer(client, "recall", {"query": f"topic{era}{number}"})
            assert [hit["id"] for hit in found["hits"]] == [stored["id"]]
    served = [len(server.lines()) for server in proxied.servers]
    assert all(served), "both servers had a share"


def test_the_proxy_passes_on_how_the_client_came(proxied: Proxied) -> None:
    with proxied.client() as client:
        moved = client.post(proxied.url + "/", content=b"{}")
    assert moved.headers["location"].startswith("https://localhost")


def test_refusals_come_through_whole(proxied: Proxied) -> None:
    body = json.dumps(ping(1))
    with proxied.client() as client:
        unknown = client.post(proxied.url, content=body, headers={"Authorization": "Bearer guess"})
        named = client.post(proxied.url, content=body, headers={"Host": "evil.example"})
        large = client.post(proxied.url, content=b" " * (2 * 1024 * 1024 + 1))
        healthy = client.get(proxied.url.replace("/mcp", "/readyz"))
    assert (unknown.status_code, unknown.headers["www-authenticate"][:6]) == (401, "Bearer")
    assert named.status_code == 421
    assert large.status_code == 413
    assert (healthy.status_code, healthy.text) == (200, "ready\n")


def test_one_server_can_go_and_come_back_and_no_call_fails(proxied: Proxied) -> None:
    with proxied.client() as client:
        body = json.dumps(ping(1))
        assert proxied.servers[0].stop() == 143
        assert [client.post(proxied.url, content=body).status_code for _ in range(10)] == [200] * 10
