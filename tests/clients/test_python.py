"""The Python client, in a process of its own, against the real command."""

import ast
import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cavemem_mcp import open_memory
from cavemem_mcp.clients import cavemem as client_module
from cavemem_mcp.model import MEMORY_BYTES_MAX, memory_id, recovery_handle

SOURCE = Path(client_module.__file__)
TEXT = "Zoë drinks 茶 😀\r\nand\ttea\n"


def _run(environment: dict[str, str], program: str) -> Any:
    """Run a program that has the client as `c`, as a file that stands alone, and return the JSON that it prints."""
    script = f"import json, sys; sys.path.insert(0, {str(SOURCE.parent)!r}); import cavemem as c\n{program}"
    finished = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, check=False, timeout=120
    )
    assert (finished.returncode, finished.stderr) == (0, b"")
    return json.loads(finished.stdout)


ERROR = "except c.CavememError as e: print(json.dumps([e.exit_code, e.stderr, str(e)]))"


def test_a_fact_lives_from_remember_to_forget(environment: dict[str, str]) -> None:
    program = f"""
old = c.remember({TEXT!a})
new = c.supersede(old["id"], {TEXT + "later"!a})
found = c.recall({"-- Zoë 茶"!a})
print(json.dumps([old, new, found, c.history(old["id"]), c.forget(new["id"]), c.forget(new["id"])]))
"""
    old, new, found, history, forgotten, again = _run(environment, program)
    assert old["id"] == memory_id(TEXT)
    assert new["supersedes"] == old["id"]
    assert [hit["text"] for hit in found["hits"]] == [TEXT + "later"]
    assert [version["text"] for version in history["history"]] == [TEXT, TEXT + "later"]
    assert (forgotten, again) == ({"forgotten": True}, {"forgotten": False})


def test_budgets_pass_through_as_they_are_given(environment: dict[str, str]) -> None:
    text = "gateway é " * 3000
    program = f"""
c.remember({text!a})
tokens = lambda found: found["hits"][0]["tokens_added"]
print(json.dumps([tokens(c.recall("gateway")), tokens(c.recall("gateway", 1)),
    tokens(c.recall("gateway", token_budget=50)), tokens(c.recall("gateway", token_budget=0)),
    c.recover({recovery_handle(text)!r}) == {text!a}]))
"""
    default, with_limit, small, whole, is_exact = _run(environment, program)
    assert default <= 2000
    assert with_limit <= 2000
    assert small <= 50
    assert whole > 2000
    assert is_exact


@pytest.mark.parametrize("size", [MEMORY_BYTES_MAX + 1, 64 * 1024 * 1024])
def test_a_text_too_large_ends_with_65_also_when_it_is_not_read_to_its_end(
    environment: dict[str, str], size: int
) -> None:
    program = f"""
try: c.remember("a" * {size})
{ERROR}
"""
    exit_code, stderr, message = _run(environment, program)
    assert exit_code == client_module.MEMORY_TOO_LARGE_EXIT_CODE == 65
    assert json.loads(stderr)["error"] == "cave_memory_too_large"
    assert stderr in message


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ('c.remember(" ")', "cave_invalid_arguments"),
        ('c.remember("half \\ud83d")', "cave_invalid_arguments"),
        ('c.recall("a", token_budget=-1)', "cave_invalid_arguments"),
        ('c.recall("a", limit=-1)', "cave_invalid_arguments"),
        ('c.history("--help")', "cave_history_failed"),
        ('c.supersede("mem_0", "text")', "cave_supersede_failed"),
        ('c.recover("ccr_0")', "cave_recover_failed"),
    ],
)
def test_what_the_command_refuses_is_an_error_with_its_words(
    environment: dict[str, str], call: str, error: str
) -> None:
    exit_code, stderr, _ = _run(environment, f"try: {call}\n{ERROR}")
    assert exit_code == 1
    assert json.loads(stderr)["error"] == error


def test_an_answer_of_more_than_32_mib_is_an_error(environment: dict[str, str], home: Path) -> None:
    with closing(open_memory(home / "mem")) as memory:
        id = memory.remember("0 " + "a" * (MEMORY_BYTES_MAX - 10)).id
        for number in range(1, 130):
            id = memory.supersede(id, f"{number} " + "a" * (MEMORY_BYTES_MAX - 10)).id
    exit_code, _, message = _run(environment, f"try: c.history({id!r})\n{ERROR}")
    assert exit_code is None
    assert "more than" in message


def test_without_the_command_the_error_says_how_to_get_it(environment: dict[str, str]) -> None:
    missing = environment | {"CAVEMEM_BIN": "", "PATH": "/nonexistent"}
    exit_code, stderr, message = _run(missing, f"try: c.forget('mem_0')\n{ERROR}")
    assert (exit_code, stderr) == (None, "")
    assert "install cavemem-mcp" in message


def test_without_a_setting_the_command_is_found_on_the_path(environment: dict[str, str]) -> None:
    folder = str(Path(environment["CAVEMEM_BIN"]).parent)
    found = environment | {"CAVEMEM_BIN": "", "PATH": f"{folder}:{environment['PATH']}"}
    assert _run(found, "print(json.dumps(c.forget('mem_0')))") == {"forgotten": False}


def test_a_command_that_hangs_is_ended(environment: dict[str, str], tmp_path: Path) -> None:
    command = tmp_path / "hanging"
    command.write_text("#!/bin/sh\nexec tail -f /dev/null\n")
    command.chmod(0o755)
    program = f"c.SECONDS_MAX = 0.1\ntry: c.forget('mem_0')\n{ERROR}"
    exit_code, _, message = _run(environment | {"CAVEMEM_BIN": str(command)}, program)
    assert exit_code is None
    assert "was ended" in message


def test_it_imports_nothing_but_the_standard_library() -> None:
    for node in ast.walk(ast.parse(SOURCE.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names
