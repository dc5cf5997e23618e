"""The recorded Inspector sessions cover what they claim, and everything that is pinned is pinned once and exactly."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cavemem_mcp.errors import INTERNAL_ERROR_ID, ForbiddenError, StoreFullError
from cavemem_mcp.server import TOOLS
from cavemem_mcp.settings import FLAGS

ROOT = Path(__file__).parent.parent
INSPECTOR = ROOT / "inspector"
README = (INSPECTOR / "README.md").read_text()
SESSIONS = {path.stem: path.read_text() for path in (INSPECTOR / "sessions").glob("*.txt")}
SERVERS: dict[str, dict[str, Any]] = json.loads((INSPECTOR / "mcp.json").read_text())["mcpServers"]

NO_ARGUMENT_IS_SO_LARGE = "cave_memory_too_large"
"""The error that needs the web page: tests/peers/test_inspector_page.py."""


def test_the_readme_lists_every_session() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", README, re.MULTILINE)) == set(SESSIONS)


@pytest.mark.parametrize("session", ["tools", "stateful"])
def test_a_session_calls_every_tool(session: str) -> None:
    commands = [line for line in SESSIONS[session].splitlines() if line.startswith("$ ")]
    called = {tool.name for tool in TOOLS if any(f" {tool.name} " in command for command in commands)}
    assert called == {tool.name for tool in TOOLS}


def test_every_error_that_a_tool_advertises_is_met() -> None:
    schemas = [tool.fn_metadata.output_schema or {} for tool in TOOLS]
    advertised = {error for schema in schemas for error in schema["properties"]["error"]["enum"]}
    met = set(re.findall(r'"error":"(cave_\w+)"', SESSIONS["errors"]))
    only_over_http = {ForbiddenError.error_id, StoreFullError.error_id}
    assert met == advertised - only_over_http - {INTERNAL_ERROR_ID, NO_ARGUMENT_IS_SO_LARGE}


def test_the_configured_servers_are_ours_and_keep_out_of_the_users_memories() -> None:
    assert SERVERS["cavemem-stdio"]["env"] == {"CAVEMAN_HOME": "inspected"}
    assert SERVERS["cavemem-http"]["url"] == f"http://{FLAGS['--host'].default}:{FLAGS['--port'].default}/mcp"


@pytest.mark.parametrize("folder", ["inspector", "tests/peers"])
def test_programs_from_npm_are_pinned_exactly_and_without_a_lock_file(folder: str) -> None:
    package = json.loads((ROOT / folder / "package.json").read_text())
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in package["dependencies"].values())
    assert not list((ROOT / folder).glob("*lock*"))


def test_the_readme_names_the_pinned_inspector() -> None:
    name = "@modelcontextprotocol/inspector"
    pinned = json.loads((INSPECTOR / "package.json").read_text())["dependencies"][name]
    assert set(re.findall(rf"{name}@([\d.]+)", README)) == {pinned}
