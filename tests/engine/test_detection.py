"""Every input of the labelled set is taken for what it is, and so is what real tools print."""

import inspect
import json
import os
import pathlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from cavemem_mcp.engine import compress
from tests.bench.engine_texts import LongText, long_texts
from tests.engine.labelled import LABELLED


def _run(*command: str, cwd: Path, expected: int = 0) -> str:
    environment = {
        **os.environ,
        "GIT_AUTHOR_NAME": "Ada",
        "GIT_AUTHOR_EMAIL": "ada@corp.example",
        "GIT_COMMITTER_NAME": "Ada",
        "GIT_COMMITTER_EMAIL": "ada@corp.example",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "LC_ALL": "C",
    }
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == expected, done.stderr
    return done.stdout + done.stderr


def test_the_set_is_large_and_holds_every_type() -> None:
    assert len(LABELLED) >= 60
    assert len({label for label, _ in LABELLED}) == 10


@pytest.mark.parametrize(("label", "text"), LABELLED)
def test_an_input_is_taken_for_what_it_is(label: str, text: str) -> None:
    assert compress(text).content_type == label


@pytest.mark.parametrize("text", long_texts(), ids=lambda text: text.name)
def test_long_texts_are_taken_for_what_they_are(text: LongText) -> None:
    assert compress(text.text).content_type == text.kind


def test_what_git_prints_is_a_diff(tmp_path: Path) -> None:
    _run("git", "init", "-q", cwd=tmp_path)
    file = tmp_path / "notes.txt"
    file.write_text("\n".join(f"line {number}" for number in range(40)))
    _run("git", "add", ".", cwd=tmp_path)
    _run("git", "commit", "-qm", "first", cwd=tmp_path)
    file.write_text("\n".join(f"line {number}" if number % 13 else "changed" for number in range(40)))
    changes = _run("git", "diff", cwd=tmp_path)
    assert compress(changes).content_type == "diff"
    assert compress(_run("git", "diff", "--color=always", cwd=tmp_path)).content_type == "terminal"
    _run("git", "commit", "-qam", "second", cwd=tmp_path)
    shown = compress(_run("git", "show", cwd=tmp_path))
    assert shown.content_type == "diff"
    for line in changes.split("\n"):
        if line.startswith(("+", "-")) and not line.startswith(("+++", "---")):
            assert line in shown.text


def test_what_pytest_and_unittest_print_are_test_logs(tmp_path: Path) -> None:
    tests = "\n".join(f"    def test_{number}(self):\n        self.assertTrue({number} != 7)\n" for number in range(30))
    (tmp_path / "test_it.py").write_text(f"import unittest\n\n\nclass T(unittest.TestCase):\n{tests}")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = (sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--rootdir=.")
    log = _run(*command, "--color=no", cwd=tmp_path, expected=1)
    result = compress(log)
    assert result.content_type == "test log"
    assert result.tokens_after < result.tokens_before / 2
    assert "AssertionError" in result.text
    assert "1 failed, 29 passed" in result.text
    coloured = compress(_run(*command, "--color=yes", cwd=tmp_path, expected=1))
    assert coloured.content_type == "terminal"
    assert coloured.tokens_after < coloured.tokens_before / 3
    assert compress(_run(sys.executable, "-m", "unittest", "-v", cwd=tmp_path, expected=1)).content_type == "test log"


def test_what_json_tool_prints_is_json(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([{"id": number, "name": f"n{number}"} for number in range(9)]))
    (tmp_path / "b.json").write_text(json.dumps({"a": {"b": [1, 2, 3]}}))
    assert compress(_run(sys.executable, "-m", "json.tool", "a.json", cwd=tmp_path)).content_type == "json records"
    assert compress(_run(sys.executable, "-m", "json.tool", "b.json", cwd=tmp_path)).content_type == "json"


def test_what_ls_and_a_traceback_print_is_prose(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"file{number}.txt").write_text("x")
    assert compress(_run("ls", "-l", cwd=tmp_path)).content_type == "prose"
    program = "import json\njson.loads('{')"
    assert compress(_run(sys.executable, "-c", program, cwd=tmp_path, expected=1)).content_type == "prose"


@pytest.mark.parametrize("module", [json.decoder, pathlib, subprocess])
def test_the_standard_library_is_code(module: ModuleType) -> None:
    text = inspect.getsource(module)
    assert compress(text).content_type == "code"
