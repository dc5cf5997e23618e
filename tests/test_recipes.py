"""`cavemem config`: what each client is told, run as users run it."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cavemem_mcp import cli
from cavemem_mcp.integrations import recipes
from cavemem_mcp.integrations.recipes import CLIENTS, NAME, Launch
from cavemem_mcp.settings import FLAGS

ROOT = Path(__file__).parent.parent
URL = "http://127.0.0.1:8765/mcp"
LAUNCH = Launch(command=["/opt/cave mem/cavemem", "mcp"], environment={}, url=URL)

Finished = subprocess.CompletedProcess[str]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Return an installed command: a script that imports the package, as installers write it."""
    path = tmp_path / "cave mem" / "bin" / "cavemem"
    path.parent.mkdir(parents=True)
    path.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from cavemem_mcp.cli import main\nsys.exit(main())\n"
    )
    path.chmod(0o755)
    return path


def _config(command: str, *arguments: str, folder: Path, **environment: str) -> Finished:
    return subprocess.run(
        [command, "config", *arguments],
        env={"HOME": str(folder), **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def _entry(client: str, snippet: str) -> dict[str, Any]:
    """Return what a client reads about our server."""
    if client == "codex":
        return tomllib.loads(snippet)["mcp_servers"][NAME]
    return json.loads(snippet)["servers" if client == "vscode" else "mcpServers"][NAME]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_snippet_names_the_installed_command_and_nothing_is_written(
    client: str, script: Path, tmp_path: Path
) -> None:
    finished = _config(str(script), client, folder=tmp_path)
    assert finished.returncode == 0
    assert finished.stderr.strip()
    entry = _entry(client, finished.stdout)
    if client == "http":
        assert entry == {"type": "http", "url": URL}
    else:
        assert (entry["command"], entry["args"]) == (str(script), ["mcp"])
        assert not entry.get("env")
    assert [path.name for path in tmp_path.iterdir()] == ["cave mem"]


def test_the_command_is_absolute_however_it_was_started(script: Path, tmp_path: Path) -> None:
    link = tmp_path / "cavemem"
    link.symlink_to(script)
    by_path = _config("./cave mem/bin/cavemem", "cursor", folder=tmp_path)
    by_name = _config("cavemem", "cursor", folder=tmp_path, PATH=str(script.parent))
    by_link = _config(str(link), "cursor", folder=tmp_path)
    commands = [_entry("cursor", finished.stdout)["command"] for finished in (by_path, by_name, by_link)]
    assert commands == [str(script), str(script), str(link)]


def test_a_module_that_is_not_installed_is_started_by_its_interpreter() -> None:
    command = recipes.installed_command(str(ROOT / "cavemem_mcp" / "__main__.py"))
    script = Path(sys.executable).parent / NAME
    assert command == ([str(script)] if script.exists() else [sys.executable, "-m", "cavemem_mcp"])


@pytest.mark.parametrize("client", [client for client in CLIENTS if client != "http"])
def test_settings_that_name_the_store_go_along(client: str, script: Path, tmp_path: Path) -> None:
    finished = _config(str(script), client, folder=tmp_path, CAVEMAN_HOME="Zoë's", CAVEMAN_CCR_MAX_BYTES="0")
    expected = {"CAVEMAN_HOME": str(tmp_path / "Zoë's"), "CAVEMAN_CCR_MAX_BYTES": "0"}
    assert _entry(client, finished.stdout)["env"] == expected


def test_a_locale_without_unicode_changes_nothing(script: Path, tmp_path: Path) -> None:
    usual = _config(str(script), "codex", folder=tmp_path, CAVEMAN_HOME="Zoë's", LC_ALL="C.UTF-8")
    old = _config(
        str(script), "codex", folder=tmp_path, CAVEMAN_HOME="Zoë's", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
    )
    assert (old.returncode, old.stdout) == (0, usual.stdout)


@pytest.mark.parametrize("arguments", [[], ["emacs"], ["codex", "cursor"]])
def test_other_clients_are_refused(arguments: list[str], script: Path, tmp_path: Path) -> None:
    finished = _config(str(script), *arguments, folder=tmp_path)
    assert (finished.returncode, finished.stdout) == (1, "")


def test_help_names_every_client() -> None:
    assert f"({', '.join(CLIENTS)})" in cli.HELP


@pytest.mark.parametrize("client", ["claude-code", "codex", "gemini"])
def test_the_command_that_does_it_instead_survives_a_shell(client: str) -> None:
    recipe = CLIENTS[client](Launch(command=LAUNCH.command, environment={"CAVEMAN_HOME": "/a b/$HOME'"}, url=URL))
    words = shlex.split(recipe.advice.rpartition("\n")[2])
    assert words[1:3] == ["mcp", "add"]
    assert {"CAVEMAN_HOME=/a b/$HOME'", "/opt/cave mem/cavemem"} <= set(words)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_path_reads_back_from_toml(path: str) -> None:
    snippet = CLIENTS["codex"](Launch(command=[path, "mcp"], environment={"CAVEMAN_HOME": path}, url=URL)).snippet
    entry = tomllib.loads(snippet)["mcp_servers"][NAME]
    assert (entry["command"], entry["env"]["CAVEMAN_HOME"]) == (path, path)


def test_the_address_is_the_one_that_is_served_by_default() -> None:
    assert f"http://{FLAGS['--host'].default}:{FLAGS['--port'].default}/mcp" == URL
    assert re.search(rf"--host .*\({FLAGS['--host'].default}\)", cli.HELP)
    assert re.search(rf"--port .*\({FLAGS['--port'].default}\)", cli.HELP)
