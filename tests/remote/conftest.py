"""Servers and token files for the tests of this folder."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.remote.server import RemoteServer, TokenFile, remote_server
from tests.server.answers import ERAS, Era


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> Era:
    return request.param


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    """Return a token file that admits alice, bob, and carol, who may only read what alice writes."""
    return _tokens(tmp_path)


@pytest.fixture
def server(tmp_path: Path, tokens: TokenFile) -> Generator[RemoteServer]:
    """Return a server with that token file, which the test may end."""
    with remote_server(tmp_path / "home", "--auth-tokens", str(tokens.path)) as server:
        yield server


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[RemoteServer, dict[str, str]]]:
    """Return such a server for a whole module, and the secrets that it admits."""
    folder = tmp_path_factory.mktemp("remote")
    tokens = _tokens(folder)
    with remote_server(folder / "home", "--auth-tokens", str(tokens.path)) as server:
        yield server, tokens.secrets


def _tokens(folder: Path) -> TokenFile:
    tokens = TokenFile(folder / "tokens.toml")
    tokens.add("alice")
    tokens.add("bob")
    tokens.add("carol", store="alice", may_write=False)
    return tokens
