"""The hosts' own tools judge what we build for them, and start it."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from cavemem_mcp import __version__
from cavemem_mcp.integrations.build import build

UV = "uv==0.13.9"
TOOL_SECONDS_MAX = 300

Environment = dict[str, str]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build")
    build(folder)
    return folder


@pytest.fixture(scope="module")
def uv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uv")
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), UV], check=True)
    return folder / "bin" / "uv"


def _run(command: list[str], environment: Environment, folder: Path) -> str:
    finished = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=TOOL_SECONDS_MAX
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def test_mcpb_accepts_the_manifest_and_packs_the_same_files(
    built: Path, environment: Environment, tmp_path: Path
) -> None:
    assert "validation passes" in _run(["mcpb", "validate", str(built / "bundle")], environment, tmp_path)
    _run(["mcpb", "pack", str(built / "bundle"), "theirs.mcpb"], environment, tmp_path)
    ours = built / f"cavemem-{__version__}.mcpb"
    with zipfile.ZipFile(ours) as one, zipfile.ZipFile(tmp_path / "theirs.mcpb") as other:
        assert {name: one.read(name) for name in one.namelist()} == {
            name: other.read(name) for name in other.namelist()
        }
    assert ours.name in _run(["mcpb", "info", str(ours)], environment, tmp_path)


async def test_the_unpacked_bundle_starts_as_its_manifest_says(
    built: Path, uv: Path, environment: Environment, tmp_path: Path
) -> None:
    ours = built / f"cavemem-{__version__}.mcpb"
    _run(["mcpb", "unpack", str(ours), "installed"], environment, tmp_path)
    configured = (tmp_path / "installed" / "manifest.json").read_text()
    for name, value in {"__dirname": tmp_path / "installed", "user_config.home": tmp_path / "data"}.items():
        configured = configured.replace(f"${{{name}}}", str(value))
    start: dict[str, Any] = json.loads(configured)["server"]["mcp_config"]
    inherited = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "UV_"))}
    server = StdioServerParameters(
        command=start["command"],
        args=start["args"],
        env={**inherited, **environment, **start["env"], "PATH": f"{uv.parent}:{environment['PATH']}"},
        cwd=tmp_path,
    )
    async with Client(server, read_timeout_seconds=TOOL_SECONDS_MAX) as client:
        remembered = await client.call_tool("cavemem_remember", {"text": "Webshop: deploys on Friday."})
    assert not remembered.is_error
    assert (tmp_path / "data" / "mem" / "mem.db").exists()


def test_claude_code_accepts_the_plugin_without_a_warning(
    built: Path, environment: Environment, tmp_path: Path
) -> None:
    validate = ["claude", "plugin", "validate", "--strict"]
    _run([*validate, str(built / "claude-code")], environment, tmp_path)
    _run([*validate, "--profile", "directory", str(built / "claude-code" / "cavemem")], environment, tmp_path)


def test_the_installed_plugin_connects(built: Path, environment: Environment, tmp_path: Path) -> None:
    _run(["claude", "plugin", "marketplace", "add", str(built / "claude-code")], environment, tmp_path)
    _run(["claude", "plugin", "install", "cavemem@cavemem"], environment, tmp_path)
    listed = _run(["claude", "mcp", "list"], environment, tmp_path)
    assert re.search(r"plugin:cavemem:cavemem: .*cavemem mcp - .*Connected", listed)
