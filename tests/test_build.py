"""What is built for other hosts: complete, of this version, and started as it says."""

import json
import struct
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
import zipfile
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from cavemem_mcp import __version__
from cavemem_mcp.integrations import icon
from cavemem_mcp.integrations.build import build
from cavemem_mcp.server import TOOLS

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build")
    assert build(folder) == [folder / f"cavemem-{__version__}.mcpb", folder / "claude-code"]
    return folder


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def test_the_bundle_holds_the_package_and_asks_for_what_it_depends_on(built: Path) -> None:
    bundle = built / "bundle"
    sources = {
        path.relative_to(ROOT) for path in (ROOT / "cavemem_mcp").rglob("*.*") if "__pycache__" not in path.parts
    }
    packed = {path.relative_to(bundle) for path in (bundle / "cavemem_mcp").rglob("*.*")}
    assert packed == sources
    project = tomllib.loads((bundle / "pyproject.toml").read_text())["project"]
    assert (project["version"], project["dependencies"]) == (__version__, PROJECT["dependencies"])


def test_the_manifest_lists_the_tools_and_lets_the_user_choose_the_folder(built: Path) -> None:
    manifest = _json(built / "bundle" / "manifest.json")
    assert (manifest["manifest_version"], manifest["version"]) == ("0.4", __version__)
    assert [tool["name"] for tool in manifest["tools"]] == [tool.name for tool in TOOLS]
    assert manifest["server"]["mcp_config"]["env"] == {"CAVEMAN_HOME": "${user_config.home}"}
    assert manifest["user_config"]["home"]["type"] == "directory"


async def test_the_bundle_serves_from_its_own_sources(built: Path, tmp_path: Path) -> None:
    configured = _json(built / "bundle" / "manifest.json")["server"]["mcp_config"]
    arguments = configured["args"][configured["args"].index("python") + 1 :]
    environment = {"CAVEMAN_HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    server = StdioServerParameters(command=sys.executable, args=arguments, cwd=built / "bundle", env=environment)
    async with Client(server) as client:
        assert len((await client.list_tools()).tools) == len(TOOLS)
        assert not (await client.call_tool("cavemem_remember", {"text": "Bundled."})).is_error
    assert (tmp_path / "mem" / "mem.db").exists()


def test_the_archive_is_the_bundle_and_the_same_sources_give_the_same_bytes(built: Path, tmp_path: Path) -> None:
    archive = built / f"cavemem-{__version__}.mcpb"
    bundle = built / "bundle"
    expected = {path.relative_to(bundle).as_posix(): path.read_bytes() for path in bundle.rglob("*") if path.is_file()}
    with zipfile.ZipFile(archive) as packed:
        assert {name: packed.read(name) for name in packed.namelist()} == expected
    again, _ = build(tmp_path / "again")
    assert again.read_bytes() == archive.read_bytes()


def test_the_plugin_starts_the_installed_command(built: Path) -> None:
    plugin = built / "claude-code" / "cavemem"
    (listed,) = _json(built / "claude-code" / ".claude-plugin" / "marketplace.json")["plugins"]
    assert (built / "claude-code" / listed["source"]).samefile(plugin)
    assert _json(plugin / ".claude-plugin" / "plugin.json")["version"] == __version__
    server = _json(plugin / ".mcp.json")["mcpServers"]["cavemem"]
    assert server == {"command": "${CAVEMEM_BIN:-cavemem}", "args": ["mcp"]}


def test_the_hooks_run_at_the_start_and_for_a_prompt_and_at_nothing_else(built: Path) -> None:
    hooks = _json(built / "claude-code" / "cavemem" / "hooks" / "hooks.json")["hooks"]
    assert set(hooks) == {"SessionStart", "UserPromptSubmit"}
    assert "compact" not in hooks["SessionStart"][0]["matcher"]


@pytest.mark.parametrize("settings", [{}, {"CAVEMEM_BIN": "with space/cavemem"}])
def test_a_hook_is_a_shell_command_that_finds_the_installed_one(
    settings: dict[str, str], built: Path, tmp_path: Path
) -> None:
    program = tmp_path / settings.get("CAVEMEM_BIN", "bin/cavemem")
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$@"; cat\n')
    program.chmod(0o755)
    hooks = _json(built / "claude-code" / "cavemem" / "hooks" / "hooks.json")["hooks"]
    for (entry,) in hooks.values():
        (hook,) = entry["hooks"]
        printed = subprocess.check_output(
            ["sh", "-c", hook["command"]],
            input=b"{}",
            env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"} | {name: str(program) for name in settings},
        )
        assert printed == b"hook\n{}"


def test_the_icon_is_a_square_png_and_an_svg_of_the_same_shapes(built: Path) -> None:
    png = (built / "bundle" / "icon.png").read_bytes()
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", png[16:24]) == (512, 512)
    drawing = ElementTree.fromstring((built / "bundle" / "icon.svg").read_text())
    assert [rectangle.tag.rpartition("}")[2] for rectangle in drawing] == ["rect"] * len(icon.SHAPES)


def test_one_command_builds_into_a_new_folder_and_never_over_something(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cavemem_mcp.integrations.build"]
    first = subprocess.run([*command, str(tmp_path / "new")], cwd=ROOT, capture_output=True, text=True, check=True)
    assert first.stdout.split() == [
        str(tmp_path / "new" / name) for name in (f"cavemem-{__version__}.mcpb", "claude-code")
    ]
    readme = (ROOT / "README.md").read_text()
    assert all(f"`{name}" in readme for name in ("cavemem-" + __version__ + ".mcpb", "claude-code`"))
    second = subprocess.run([*command, str(tmp_path / "new")], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (second.returncode, second.stdout) == (1, "")
    assert "is not empty" in second.stderr
    nowhere = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (nowhere.returncode, nowhere.stdout) == (1, "")
