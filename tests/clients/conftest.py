"""The command that clients run: a real executable for a user of their own."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
CODE_PAGE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""An environment in which Python's own encodings are not UTF-8, as on Windows."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture(params=[{}, CODE_PAGE], ids=["utf-8", "code page"])
def environment(request: pytest.FixtureRequest, home: Path, tmp_path: Path) -> dict[str, str]:
    """Return the environment of a program that finds the command by CAVEMEM_BIN."""
    command = tmp_path / "bin" / "cavemem"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\nPYTHONPATH='{ROOT}' exec '{sys.executable}' -m cavemem_mcp \"$@\"\n")
    command.chmod(0o755)
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "CAVEMAN_HOME": str(home),
        "CAVEMEM_BIN": str(command),
    } | request.param
