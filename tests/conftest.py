"""What all tests share: a clean environment, a memory of their own, one event loop, and how much hypothesis tries."""

import os
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings

from cavemem_mcp import Cavemem, open_memory

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=200, print_blob=True)
settings.register_profile("dev", deadline=None, max_examples=30, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_addoption(parser: pytest.Parser) -> None:
    faults = parser.getgroup("faults", "how hard tests/faults tries")
    faults.addoption("--long", action="store_true", help="try far harder, for hours instead of minutes")
    faults.addoption("--seed", type=int, default=None, help="repeat the choices of an earlier run")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the developer's own memories and settings out of the tests."""
    for name in [name for name in os.environ if name.startswith("CAVEMAN_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return where a store of this test goes; nothing is there yet."""
    return tmp_path / "mem"


@pytest.fixture
def memory(folder: Path) -> Generator[Cavemem]:
    with closing(open_memory(folder)) as memory:
        yield memory
