"""A real server that faces a network, and callers who say who they are."""

import json
import os
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, cast

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from cavemem_mcp.credentials import Credential, new_credential
from tests.server.answers import Era
from tests.server.processes import call, command

SECONDS_MAX: Final = 20
TRUST: Final = ssl.create_default_context()
"""Made once: it takes longer than a request."""
HEADERS: Final = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


class TokenFile:
    """A token file, and the secrets that it admits by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.secrets: dict[str, str] = {}
        self._entries: dict[str, str] = {}
        self.write()

    def add(self, name: str, *, store: str | None = None, may_write: bool = True, more: str = "") -> str:
        """Add an entry, with more lines if need be, and return its secret."""
        secret, credential = new_credential(name, store=store, may_write=may_write)
        self._set(credential, more)
        self.secrets[name] = secret
        return secret

    def remove(self, name: str) -> None:
        del self._entries[name]
        self.write()

    def write(self, text: str | None = None) -> None:
        """Write the entries, or any text instead of them."""
        self.path.touch(mode=0o600)
        self.path.write_text("\n".join(self._entries.values()) if text is None else text)

    def _set(self, credential: Credential, more: str) -> None:
        self._entries[credential.name] = credential.as_toml() + more + "\n"
        self.write()


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


class RemoteServer:
    """A server process on a free port, or on one that is given, whose stderr goes to a file."""

    def __init__(self, home: Path, *arguments: str, settings: Mapping[str, str] | None = None, port: int = 0) -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        self.stderr = home / f"stderr-{time.monotonic_ns()}"
        with self.stderr.open("wb") as errors:
            self.process = subprocess.Popen(
                command("mcp", "--transport", "streamable-http", "--port", str(port), *arguments),
                env={**os.environ, "CAVEMAN_HOME": str(home), **(settings or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        self.wait_for("serving MCP at http")
        self.url = self.errors().partition("serving MCP at ")[2].split()[0]
        self.origin = self.url.removesuffix("/mcp")
        self.port = int(self.origin.rpartition(":")[2])

    def errors(self) -> str:
        return self.stderr.read_text()

    def wait_for(self, text: str) -> None:
        """Wait until stderr says something."""
        poll(lambda: text in self.errors() or self.process.poll() is not None)
        assert text in self.errors(), self.errors()

    def lines(self) -> list[dict[str, Any]]:
        """Return what the request log says so far."""
        return [
            json.loads(line.partition(" request ")[2]) for line in self.errors().splitlines() if " request {" in line
        ]

    def client(self, secret: str | None = None, **options: Any) -> httpx2.Client:
        headers = HEADERS if secret is None else HEADERS | bearer(secret)
        return httpx2.Client(
            base_url=self.origin, headers=headers, timeout=SECONDS_MAX, verify=TRUST, trust_env=False, **options
        )

    def post(self, secret: str | None, message: object, headers: Mapping[str, str] | None = None) -> httpx2.Response:
        """Send one message and return the response."""
        with self.client(secret) as client:
            return client.post("/mcp", content=json.dumps(message), headers=dict(headers or {}))

    def tool(self, secret: str | None, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its structured result, success or error."""
        response = self.post(secret, call(tool, arguments))
        assert response.status_code == 200, response.text
        return cast("dict[str, Any]", response.json()["result"]["structuredContent"])

    def recalled(self, secret: str | None, query: str) -> list[str]:
        return [hit["text"] for hit in self.tool(secret, "recall", query=query)["hits"]]

    def reload(self) -> None:
        self.process.send_signal(signal.SIGHUP)

    def stop(self) -> int:
        """Stop the server as an operator does, and return its exit code."""
        self.process.terminate()
        return self.process.wait(SECONDS_MAX)

    @asynccontextmanager
    async def mcp(self, secret: str | None = None, era: Era = "auto") -> AsyncGenerator[Client]:
        """Connect the SDK's client."""
        async with sdk_client(self.url, secret, era) as client:
            yield client


@asynccontextmanager
async def sdk_client(url: str, secret: str | None = None, era: Era = "auto") -> AsyncGenerator[Client]:
    headers = {} if secret is None else bearer(secret)
    with anyio.fail_after(SECONDS_MAX * 3):
        async with (
            httpx2.AsyncClient(headers=headers, timeout=SECONDS_MAX, verify=TRUST, trust_env=False) as http,
            Client(streamable_http_client(url, http_client=http), mode=era) as client,
        ):
            yield client


@contextmanager
def remote_server(
    home: Path, *arguments: str, settings: Mapping[str, str] | None = None, port: int = 0
) -> Generator[RemoteServer]:
    """Start a server and leave none behind."""
    server = RemoteServer(home, *arguments, settings=settings, port=port)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


def poll(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; fail when it does not come to hold."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, "the condition does not come to hold"
        threading.Event().wait(0.01)
