"""Other projects' programs, fetched from their registries into a temporary folder: once, and in exact versions.

Not part of the plain test run. A test here is skipped, with a word, only where the registry's own client is missing.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from cavemem_mcp import open_memory
from tests.remote.server import RemoteServer, TokenFile, bearer, remote_server

NODE_PACKAGES: Final = (
    "node@22.23.3",
    "@modelcontextprotocol/client@2.4.0",
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "@modelcontextprotocol/inspector@2.12.0",
    "@modelcontextprotocol/sdk@1.32.2",
)
PYTHON_PACKAGES: Final = ("mcp==1.30.0",)
CLIENTS: Final = Path(__file__).parent / "clients"
ORIGINAL: Final = "".join(
    f"{number:05} the gateway answered with status {number * 7919 % 503}\n" for number in range(4700)
)
"""A memory of 200 KB."""


def _fetched(kind: str, packages: Sequence[str], *commands: list[str]) -> Path:
    """Return a folder in which commands have been run to their end, now or in an earlier test run."""
    pins = hashlib.sha256(repr((packages, commands, sys.version_info[:2])).encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"cavemem-peers-{os.geteuid()}-{kind}-{pins}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        for arguments in commands:
            done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
            assert done.returncode == 0, done.stdout + done.stderr
        (folder / "complete").touch()
    return folder


@pytest.fixture(scope="session")
def node() -> Path:
    """Return a folder with Node and the packages that run on it."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    install = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error", "--prefix=."]
    folder = _fetched("node", NODE_PACKAGES, [*install, *NODE_PACKAGES])
    for script in CLIENTS.glob("*.mjs"):
        shutil.copy(script, folder)
    return folder


@pytest.fixture(scope="session")
def old_python() -> Path:
    """Return the interpreter of a virtual environment with the SDK's first generation."""
    folder = _fetched(
        "python",
        PYTHON_PACKAGES,
        [sys.executable, "-m", "venv", "environment"],
        ["environment/bin/python", "-m", "pip", "install", "--quiet", *PYTHON_PACKAGES],
    )
    return folder / "environment" / "bin" / "python"


@pytest.fixture(scope="module")
def peer_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[RemoteServer, str]]:
    """Return a server whose store holds the original, and a secret that it admits."""
    folder = tmp_path_factory.mktemp("peers")
    tokens = TokenFile(folder / "tokens.toml")
    secret = tokens.add("peer")
    _prepare(folder / "home" / "stores" / "peer" / "mem")
    with remote_server(folder / "home", "--auth-tokens", str(tokens.path)) as server:
        yield server, secret


@pytest.fixture(params=["stdio", "http"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Return how a client reaches a server whose store holds the original, over either transport."""
    if request.param == "stdio":
        _prepare(tmp_path / "mem")
        environment = {"CAVEMAN_HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": os.getcwd()}  # noqa: PTH109  # for another process
        return {"command": sys.executable, "args": ["-m", "cavemem_mcp"], "env": environment}
    server, secret = request.getfixturevalue("peer_server")
    return {"url": server.url, "headers": bearer(secret)}


def _prepare(folder: Path) -> None:
    memory = open_memory(folder)
    memory.remember(ORIGINAL)
    memory.close()


def run_peer(command: Sequence[str | Path], target: dict[str, Any], **environment: str) -> dict[str, Any]:
    """Run a client against a target and return what it reports."""
    done = subprocess.run(
        command,
        env={**os.environ, "PEER_TARGET": json.dumps(target), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
