"""The generic scenarios of the protocol's conformance suite, against the server as it ships.

Scenarios that call a fixture (a tool named `test_…`) would test the SDK, and are not claimed. Nor are those about
sessions, of which there are none, and those that pass without having asked anything.
"""

import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

from tests.remote.server import RemoteServer, remote_server

SCENARIOS: Final = {
    "2025-11-25": (
        "server-initialize",
        "ping",
        "tools-list",
        "resources-list",
        "prompts-list",
        "dns-rebinding-protection",
    ),
    "2026-07-28": (
        "server-stateless",
        "tools-list",
        "resources-list",
        "prompts-list",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
        "caching",
        "http-header-validation",
        "sep-2164-resource-not-found",
        "input-required-result-unsupported-methods",
    ),
}
NOT_TESTABLE: Final = """\
server:
  - server-stateless:sep-2575-server-rejects-undeclared-capability
  - server-stateless:sep-2575-missing-capability-http-400
  - server-stateless:sep-2575-http-server-no-independent-requests-on-stream
  - server-stateless:sep-2575-server-no-log-without-loglevel
"""
"""Checks inside a generic scenario that need a fixture of the suite's own. One that would pass is an error."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[RemoteServer]:
    with remote_server(tmp_path_factory.mktemp("conformance")) as server:
        yield server


@pytest.mark.parametrize(
    ("version", "scenario"), [(version, scenario) for version, names in SCENARIOS.items() for scenario in names]
)
def test_the_server_conforms(server: RemoteServer, node: Path, tmp_path: Path, version: str, scenario: str) -> None:
    baseline = tmp_path / "baseline.yml"
    baseline.write_text(NOT_TESTABLE if scenario == "server-stateless" else "server: []\n")
    done = subprocess.run(
        [
            node / "node_modules" / ".bin" / "node",
            node / "node_modules" / ".bin" / "conformance",
            *("server", "--url", server.url, "--scenario", scenario, "--spec-version", version),
            *("--expected-failures", str(baseline)),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Passed: 0/0" not in done.stdout
