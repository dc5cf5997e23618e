"""Clients take our recipes: what their own `mcp add` writes is what we print, and where they can, they connect."""

import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

CLIENT_SECONDS_MAX = 180

Environment = dict[str, str]


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())["mcpServers"]


def _toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text())["mcp_servers"]


WRITTEN: Mapping[str, tuple[str, Callable[[Path], dict[str, Any]]]] = {
    "claude-code": (".claude.json", _json),
    "codex": (".codex/config.toml", _toml),
    "gemini": (".gemini/settings.json", _json),
}
"""By client: the file in the home folder that its own command writes, and how to read its servers."""


def _run(command: list[str], environment: Environment, folder: Path) -> subprocess.CompletedProcess[str]:
    finished = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=CLIENT_SECONDS_MAX
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished


def _recipe(client: str, environment: Environment, folder: Path) -> tuple[str, list[str]]:
    """Return the snippet for a client, and the command that the advice gives instead."""
    finished = subprocess.run(
        ["cavemem", "config", client], env=environment, cwd=folder, capture_output=True, text=True, check=True
    )
    return finished.stdout, shlex.split(finished.stderr.strip().rpartition("\n")[2])


@pytest.mark.parametrize("settings", [{}, {"CAVEMAN_HOME": "/srv/cave mem", "CAVEMAN_CCR_MAX_BYTES": "1000000"}])
@pytest.mark.parametrize("client", WRITTEN)
def test_a_client_writes_what_we_print(
    client: str, settings: Environment, environment: Environment, tmp_path: Path
) -> None:
    snippet, command = _recipe(client, environment | settings, tmp_path)
    _run(command, environment, tmp_path)
    file, read = WRITTEN[client]
    home = Path(environment["HOME"])
    (tmp_path / "printed").write_text(snippet)
    assert read(home / file) == read(tmp_path / "printed")


def test_claude_code_connects(environment: Environment, tmp_path: Path) -> None:
    _, command = _recipe("claude-code", environment, tmp_path)
    _run(command, environment, tmp_path)
    listed = _run(["claude", "mcp", "list"], environment, tmp_path)
    assert re.search(r"cavemem: .*cavemem mcp - .*Connected", listed.stdout)


def test_gemini_connects(environment: Environment, tmp_path: Path) -> None:
    snippet, _ = _recipe("gemini", environment, tmp_path)
    home = Path(environment["HOME"])
    (home / ".gemini").mkdir()
    (home / ".gemini" / "settings.json").write_text(snippet)
    (home / ".gemini" / "trustedFolders.json").write_text(json.dumps({str(tmp_path): "TRUST_FOLDER"}))
    listed = _run(["gemini", "mcp", "list"], environment, tmp_path)
    assert re.search(r"cavemem: .*cavemem mcp \(stdio\) - Connected", listed.stdout + listed.stderr)


def test_codex_reads_our_snippet(environment: Environment, tmp_path: Path) -> None:
    snippet, _ = _recipe("codex", environment, tmp_path)
    home = Path(environment["HOME"])
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text(snippet)
    read = json.loads(_run(["codex", "mcp", "get", "cavemem", "--json"], environment, tmp_path).stdout)
    assert (read["enabled"], read["transport"]["args"]) == (True, ["mcp"])
