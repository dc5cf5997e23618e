"""Servers for the tests of this folder: in memory in both protocol eras, and real processes."""

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
from mcp import Client

from cavemem_mcp import open_memory
from cavemem_mcp.server import build_server
from tests.server.answers import ERAS, Era
from tests.server.processes import HttpServer, LineClient, http_server, line_client


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> Era:
    return request.param


@pytest.fixture
async def client(folder: Path, era: Era) -> AsyncGenerator[Client]:
    """Return a client of a server in this process, in each protocol era."""
    async with Client(build_server(lambda: open_memory(folder)), mode=era) as client:
        yield client


@pytest.fixture
def lines(tmp_path: Path) -> Generator[LineClient]:
    """Return a raw client of a real server over stdio, which the test may end."""
    with line_client(tmp_path) as client:
        client.initialize()
        yield client


@pytest.fixture(scope="module")
def shared_lines(tmp_path_factory: pytest.TempPathFactory) -> Generator[LineClient]:
    """Return a raw client of a real server over stdio, which survives every test that gets it."""
    with line_client(tmp_path_factory.mktemp("stdio")) as client:
        client.initialize()
        yield client


@pytest.fixture
def server(tmp_path: Path) -> Generator[HttpServer]:
    """Return a real server over HTTP, which the test may end."""
    with http_server(tmp_path) as server:
        yield server


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[HttpServer]:
    """Return a real server over HTTP, which survives every test that gets it."""
    with http_server(tmp_path_factory.mktemp("http")) as server:
        yield server
