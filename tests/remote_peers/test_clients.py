"""Clients of every SDK generation play one session: list, call, structured error, unknown tool, recover 200 KB."""

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.types import INVALID_PARAMS

from cavemem_mcp.model import memory_id
from cavemem_mcp.server import TOOLS
from tests.remote.server import sdk_client
from tests.remote_peers.conftest import CLIENTS, ORIGINAL, run_peer
from tests.server.answers import ERAS, Era, answer

REPORT: Final = {
    "tools": [tool.name for tool in TOOLS],
    "id": memory_id("Peers agree"),
    "error": "cave_invalid_arguments",
    "unknown": INVALID_PARAMS,
    "recovered": hashlib.sha256(ORIGINAL.encode()).hexdigest(),
}


@pytest.mark.parametrize("era", ERAS)
async def test_the_python_sdk_2(target: dict[str, Any], era: Era) -> None:
    if "url" in target:
        secret = target["headers"]["Authorization"].removeprefix("Bearer ")
        async with sdk_client(target["url"], secret, era) as client:
            assert await _session(client) == REPORT
    else:
        async with Client(StdioServerParameters(**target), mode=era) as client:
            assert await _session(client) == REPORT


async def _session(client: Client) -> dict[str, Any]:
    hit = (await answer(client, "recall", {"query": "gateway", "token_budget": 50}))["hits"][0]
    recovered = await answer(client, "recover", {"handle": hit["recovery_handle"]})
    with pytest.raises(MCPError) as unknown:
        await client.call_tool("cavemem_unknown", {})
    return {
        "tools": [tool.name for tool in (await client.list_tools()).tools],
        "id": (await answer(client, "remember", {"text": "Peers agree"}))["id"],
        "error": (await answer(client, "recall", {"query": "gateway", "limit": -1}))["error"],
        "unknown": unknown.value.error.code,
        "recovered": hashlib.sha256(recovered["text"].encode()).hexdigest(),
    }


def test_the_python_sdk_1(target: dict[str, Any], old_python: Path) -> None:
    report = run_peer([old_python, CLIENTS / "python_1.py"], target)
    assert report.pop("version") == "2025-11-25"
    assert report == REPORT


def test_the_typescript_sdk_1(target: dict[str, Any], node: Path) -> None:
    assert run_peer([_node(node), node / "typescript_1.mjs"], target) == REPORT


@pytest.mark.parametrize("era", ERAS)
def test_the_typescript_sdk_2(target: dict[str, Any], node: Path, era: Era) -> None:
    assert run_peer([_node(node), node / "typescript_2.mjs"], target, PEER_ERA=era) == REPORT


def _node(folder: Path) -> Path:
    return folder / "node_modules" / ".bin" / "node"


class Inspector:
    """MCP Inspector's command line against one target."""

    def __init__(self, node: Path, target: dict[str, Any], home: Path) -> None:
        self._node = node
        self._home = home
        entry = {"type": "streamable-http", **target} if "url" in target else {"type": "stdio", **target}
        self._config = home / "inspector.json"
        self._config.write_text(json.dumps({"mcpServers": {"cavemem": entry}}))

    def run(self, *arguments: str, exit_code: int = 0) -> Any:
        done = subprocess.run(
            [
                _node(self._node),
                self._node / "node_modules" / ".bin" / "mcp-inspector",
                *("--cli", "--config", str(self._config), "--server", "cavemem", "--format", "json", "-q"),
                *arguments,
            ],
            env={**os.environ, "HOME": str(self._home)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == exit_code, done.stdout + done.stderr
        return json.loads(done.stdout)["result"] if done.stdout.strip() else None

    def tool(self, name: str, exit_code: int = 0, **arguments: object) -> dict[str, Any]:
        given = ["--tool-args-json", json.dumps(arguments)]
        answered = self.run("--method", "tools/call", "--tool-name", name, *given, exit_code=exit_code)
        return answered["structuredContent"] if answered else {}


def test_the_inspectors_command_line(target: dict[str, Any], node: Path, tmp_path: Path) -> None:
    inspector = Inspector(node, target, tmp_path)
    listed = inspector.run("--method", "tools/list", "--strict")
    assert [tool["name"] for tool in listed["tools"]] == REPORT["tools"]
    assert inspector.tool("cavemem_remember", text="Peers agree")["id"] == REPORT["id"]
    assert inspector.tool("cavemem_recall", exit_code=5, query="gateway", limit=-1)["error"] == REPORT["error"]
    inspector.run("--method", "tools/call", "--tool-name", "cavemem_unknown", exit_code=5)
    hit = inspector.tool("cavemem_recall", query="gateway", token_budget=50)["hits"][0]
    recovered = inspector.tool("cavemem_recover", handle=hit["recovery_handle"])["text"]
    assert recovered == ORIGINAL
