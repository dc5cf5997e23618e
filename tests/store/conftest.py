"""Fixtures for the storage: a folder that does not exist yet, and a store in it."""

from collections.abc import Generator
from pathlib import Path

import pytest

from cavemem_mcp.store.sqlite import SqliteStore


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "home" / "mem"


@pytest.fixture
def store(folder: Path) -> Generator[SqliteStore]:
    store = SqliteStore(folder)
    yield store
    store.close()
