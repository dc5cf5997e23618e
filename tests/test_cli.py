"""The command line, run as users run it: a process of its own, looked at from outside."""

import json
import os
import pty
import stat
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cavemem_mcp import OperationFailedError, StoreError, __version__, cli, open_memory, service
from cavemem_mcp.model import MEMORY_BYTES_MAX, memory_id, recovery_handle
from cavemem_mcp.store import Store

ROOT = Path(__file__).parent.parent
C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

Finished = subprocess.CompletedProcess[bytes]


class CommandLine:
    """Runs `cavemem` for a user whose home folder is `home`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / ".caveman" / "mem"

    def environment(self, settings: Mapping[str, str] | None = None) -> dict[str, str]:
        return {"HOME": str(self.home), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)} | dict(settings or {})

    def run(self, *arguments: str | bytes, stdin: bytes = b"", settings: Mapping[str, str] | None = None) -> Finished:
        command = [sys.executable, "-m", "cavemem_mcp", *arguments]
        environment = self.environment(settings)
        return subprocess.run(command, input=stdin, capture_output=True, env=environment, check=False, timeout=60)

    def answer(self, *arguments: str, stdin: bytes = b"") -> dict[str, Any]:
        """Run a command that must succeed without a word on stderr, and return its JSON."""
        finished = self.run(*arguments, stdin=stdin)
        assert (finished.returncode, finished.stderr) == (0, b"")
        return json.loads(finished.stdout)

    def error(self, *arguments: str | bytes, stdin: bytes = b"", exit_code: int = 1) -> dict[str, str]:
        """Run a command that must fail with nothing on stdout, and return the error of stderr's only line."""
        finished = self.run(*arguments, stdin=stdin)
        assert (finished.returncode, finished.stdout) == (exit_code, b"")
        assert finished.stderr.count(b"\n") == 1
        return json.loads(finished.stderr)


@pytest.fixture
def cavemem(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


def test_a_fact_lives_from_remember_to_forget(cavemem: CommandLine) -> None:
    old = cavemem.answer("remember", "The deploy day is Friday")
    assert cavemem.answer("recall", "deploy")["hits"][0]["text"] == "The deploy day is Friday"

    new = cavemem.answer("supersede", old["id"], "The deploy day is Tuesday")
    assert new["supersedes"] == old["id"]
    assert [hit["id"] for hit in cavemem.answer("recall", "deploy")["hits"]] == [new["id"]]
    assert [version["id"] for version in cavemem.answer("history", old["id"])["history"]] == [old["id"], new["id"]]

    assert cavemem.answer("forget", new["id"]) == {"forgotten": True}
    assert cavemem.answer("forget", new["id"]) == {"forgotten": False}
    assert cavemem.answer("recall", "deploy")["hits"] == []


def test_answers_are_indented_json_in_utf8(cavemem: CommandLine) -> None:
    cavemem.answer("remember", "Zoë drinks 茶")
    printed = cavemem.run("recall", "Zoë").stdout
    assert printed.startswith(b'{\n  "hits": [\n    {\n')
    assert printed.endswith(b"}\n")
    assert "Zoë drinks 茶".encode() in printed


def test_texts_are_utf8_whatever_the_locale(cavemem: CommandLine) -> None:
    cavemem.run("remember", "Zoë drinks 茶", settings=C_LOCALE)
    cavemem.run("remember", "--stdin", stdin="Zoë eats 餅".encode(), settings=C_LOCALE)
    recalled = cavemem.run("recall", "Zoë", settings=C_LOCALE)
    assert {hit["text"] for hit in json.loads(recalled.stdout.decode())["hits"]} == {"Zoë drinks 茶", "Zoë eats 餅"}


@pytest.mark.parametrize(
    "text", ["one\n", "\ufeffbom\r\n\r\nlines\r", "nul \0 and \u2028", " blanks around ", "-- not --"]
)
def test_standard_input_is_stored_byte_for_byte(cavemem: CommandLine, text: str) -> None:
    id = cavemem.answer("remember", "--stdin", stdin=text.encode())["id"]
    assert cavemem.answer("history", id)["history"][0]["text"] == text


def test_a_new_version_can_come_from_standard_input(cavemem: CommandLine) -> None:
    id = cavemem.answer("remember", "old")["id"]
    assert cavemem.answer("supersede", id, "--stdin", stdin=b"new\n")["id"] == memory_id("new\n")
    assert cavemem.answer("supersede", "--stdin", memory_id("new\n"), stdin=b"newer")["id"] == memory_id("newer")


def test_the_largest_memory_fits_through_standard_input(cavemem: CommandLine) -> None:
    text = b"a" * MEMORY_BYTES_MAX
    assert cavemem.answer("remember", "--stdin", stdin=text)["id"] == memory_id(text.decode())


@pytest.mark.parametrize("text", [b"a" * (MEMORY_BYTES_MAX + 1), "é".encode() * MEMORY_BYTES_MAX, b"\xff" * 2**20])
def test_a_larger_memory_ends_with_65_before_the_store_is_touched(cavemem: CommandLine, text: bytes) -> None:
    error = cavemem.error("remember", "--stdin", stdin=text, exit_code=65)
    assert error["error"] == "cave_memory_too_large"
    assert not cavemem.folder.exists()


def test_endless_standard_input_is_not_read_to_its_end(cavemem: CommandLine) -> None:
    with Path("/dev/zero").open("rb") as zeros:
        command = [sys.executable, "-m", "cavemem_mcp", "remember", "--stdin"]
        finished = subprocess.run(command, stdin=zeros, capture_output=True, env=cavemem.environment(), check=False)
    assert finished.returncode == 65


def test_what_is_not_utf8_is_refused(cavemem: CommandLine) -> None:
    by_stdin = cavemem.error("remember", "--stdin", stdin=b"caf\xe9")
    assert by_stdin == {
        "error": "cave_invalid_arguments",
        "message": "text: is not valid UTF-8 at byte 3; send UTF-8",
    }
    assert cavemem.error("remember", b"caf\xe9") == by_stdin
    assert cavemem.error("recall", b"\xff")["message"].startswith("query: is not valid UTF-8")


def test_a_text_that_begins_with_a_dash_stands_after_two_dashes(cavemem: CommandLine) -> None:
    assert cavemem.answer("remember", "--", "--stdin")["id"] == memory_id("--stdin")
    assert cavemem.answer("remember", "--", "--")["id"] == memory_id("--")
    assert cavemem.answer("supersede", memory_id("--"), "--", "-v is verbose")["id"] == memory_id("-v is verbose")
    assert cavemem.answer("remember", "--", "--help")["id"] == memory_id("--help")


def test_recover_writes_the_exact_bytes(cavemem: CommandLine) -> None:
    text = "".join(f"line {number} of the gateway log é\r\n" for number in range(200))
    cavemem.answer("remember", "--stdin", stdin=text.encode())
    hit = cavemem.answer("recall", "gateway", "1", "50")["hits"][0]
    assert hit["tokens_added"] <= 50
    assert hit["recovery_handle"] == recovery_handle(text)
    assert cavemem.run("recover", hit["recovery_handle"]).stdout == text.encode()


def test_zero_lifts_the_token_budget_and_leaving_it_out_does_not(cavemem: CommandLine) -> None:
    text = "gateway " * 3000
    cavemem.answer("remember", "--stdin", stdin=text.encode())
    assert cavemem.answer("recall", "gateway")["hits"][0]["tokens_added"] <= 2000
    assert cavemem.answer("recall", "gateway", "5")["hits"][0]["tokens_added"] <= 2000
    assert cavemem.answer("recall", "gateway", "0", "0")["hits"][0]["text"] == text


def test_a_limit_of_zero_is_the_default(cavemem: CommandLine) -> None:
    with closing(open_memory(cavemem.folder)) as memory:
        for number in range(7):
            memory.remember(f"gateway number {number}")
            memory.remember(f"another fact, number {number}")  # so that "gateway" tells something
    assert len(cavemem.answer("recall", "gateway", "0")["hits"]) == 5
    assert len(cavemem.answer("recall", "gateway", "6")["hits"]) == 6
    assert len(cavemem.answer("recall", "gateway", "100000")["hits"]) == 7


@pytest.mark.parametrize("number", ["-1", "1.5", "five", "", "9" * 30])
@pytest.mark.parametrize("name", ["limit", "token_budget"])
def test_a_number_that_is_none_names_its_argument(cavemem: CommandLine, name: str, number: str) -> None:
    numbers = [number] if name == "limit" else ["5", number]
    error = cavemem.error("recall", "gateway", *numbers)
    assert error["error"] == "cave_invalid_arguments"
    assert error["message"].startswith(f"{name}: ")


def test_failures_are_one_line_of_json_on_stderr(cavemem: CommandLine) -> None:
    assert cavemem.error("history", "mem_0")["error"] == "cave_history_failed"
    assert cavemem.error("recover", "ccr_0")["error"] == "cave_recover_failed"
    assert cavemem.error("supersede", "mem_0", "text")["error"] == "cave_supersede_failed"
    assert cavemem.error("remember", " ")["error"] == "cave_invalid_arguments"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["remember", "two", "words"], "quote a text"),
        (["remember"], "text is missing; give it here or by --stdin"),
        (["remember", "text", "--stdin"], "too many arguments"),
        (["remember", "-text"], "give a text that begins with - after --"),
        (["remember", "--stdin=text"], "--stdin is no option here"),
        (["supersede", "--stdin"], "id is missing"),
        (["supersede", "mem_0"], "text is missing"),
        (["recall"], "query is missing"),
        (["recall", "a", "1", "2", "3"], "too many arguments"),
        (["history", "--stdin"], "--stdin is no option here"),
        (["demo", "all"], "too many arguments"),
        (["--verbose"], "options stand after a command"),
        (["mcp", "now"], "too many arguments"),
        (["mcp", "--transport"], "--transport needs a value"),
        (["mcp", "--transport", "sse"], "--transport is stdio or streamable-http"),
        (["mcp", "--port", "8765"], "--port needs --transport streamable-http"),
        (["mcp", "--transport=streamable-http", "--host="], "--host needs a value"),
    ],
)
def test_wrong_usage_ends_with_1_and_says_what_is_wrong(
    cavemem: CommandLine, arguments: list[str], message: str
) -> None:
    finished = cavemem.run(*arguments)
    assert (finished.returncode, finished.stdout) == (1, b"")
    assert message in finished.stderr.decode()
    assert finished.stderr.endswith(b"For help run: cavemem help\n")
    assert not cavemem.folder.exists()


@pytest.mark.parametrize("port", ["65536", "-1", "http"])
def test_a_port_that_is_none_is_refused(cavemem: CommandLine, port: str) -> None:
    error = cavemem.error("mcp", "--transport", "streamable-http", "--port", port)
    assert error["message"].startswith("--port: ")


@pytest.mark.parametrize("name", ["recal", "serve", "", "mem_0", "\n"])
def test_only_an_unknown_command_ends_with_2(cavemem: CommandLine, name: str) -> None:
    finished = cavemem.run(name)
    assert (finished.returncode, finished.stdout) == (2, b"")
    assert b"unknown command" in finished.stderr
    assert not cavemem.folder.exists()


@pytest.mark.parametrize(
    "arguments", [["help"], ["--help"], ["-h"], ["help", "recall"], ["recall", "--help"], ["mcp", "-h"], ["demo", "-h"]]
)
def test_help_goes_to_stdout_and_leaves_no_trace(cavemem: CommandLine, arguments: list[str]) -> None:
    finished = cavemem.run(*arguments)
    assert (finished.returncode, finished.stderr) == (0, b"")
    assert finished.stdout == cli.HELP.encode()
    assert list(cavemem.home.iterdir()) == []


def test_the_version_goes_to_stdout_and_leaves_no_trace(cavemem: CommandLine) -> None:
    assert cavemem.run("--version").stdout == f"cavemem {__version__}\n".encode()
    assert list(cavemem.home.iterdir()) == []


def test_a_tilde_in_caveman_home_is_the_home_folder(cavemem: CommandLine) -> None:
    settings = {"CAVEMAN_HOME": "~/.caveman"}
    assert cavemem.run("remember", "a fact", settings=settings).returncode == 0
    assert (cavemem.folder / "mem.db").exists()


def test_the_folder_is_where_caveman_home_says(cavemem: CommandLine, tmp_path: Path) -> None:
    cavemem.run("remember", "a fact", settings={"CAVEMAN_HOME": str(tmp_path / "elsewhere")})
    assert stat.S_IMODE((tmp_path / "elsewhere" / "mem").stat().st_mode) == 0o700
    assert not cavemem.folder.exists()
    cavemem.run("remember", "a fact", settings={"CAVEMAN_HOME": ""})
    assert cavemem.folder.exists()


@pytest.mark.parametrize("arguments", [["recall", "fact"], ["mcp"], ["mcp", "--transport", "streamable-http"]])
@pytest.mark.parametrize("setting", ["all", "-1", "1GB"])
def test_a_senseless_bound_is_refused_by_name(cavemem: CommandLine, arguments: list[str], setting: str) -> None:
    finished = cavemem.run(*arguments, settings={"CAVEMAN_CCR_MAX_BYTES": setting})
    assert finished.returncode == 1
    assert json.loads(finished.stderr)["message"].startswith("CAVEMAN_CCR_MAX_BYTES: ")


def test_the_bound_keeps_originals_out_but_every_handle_still_recovers(cavemem: CommandLine) -> None:
    text = "gateway " * 3000
    cavemem.answer("remember", "--stdin", stdin=text.encode())
    recalled = cavemem.run("recall", "gateway", settings={"CAVEMAN_CCR_MAX_BYTES": "10"})
    handle = json.loads(recalled.stdout)["hits"][0]["recovery_handle"]
    assert cavemem.run("recover", handle).stdout == text.encode()


def test_a_store_that_cannot_be_used_is_a_clear_error(cavemem: CommandLine) -> None:
    cavemem.folder.mkdir(parents=True, mode=0o700)
    (cavemem.folder / "mem.db").write_bytes(b"this is no database, but long enough to be looked at as one" * 100)
    assert cavemem.error("recall", "fact")["error"] == "cave_store_failed"


def test_an_erasure_that_cannot_be_finished_does_not_keep_the_memory_shut(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(open_memory(folder)) as memory:
        id = memory.remember("gateway " * 3000).id
        memory.recall("gateway")
    (folder / "ccr.db").write_bytes(b"damaged " * 4096)
    with closing(open_memory(folder)) as memory, pytest.raises(OperationFailedError):
        memory.forget(id)

    with closing(open_memory(folder)) as memory:
        assert memory.recall("gateway").hits == ()
    assert "not erased everywhere yet" in caplog.text


@pytest.mark.parametrize(
    ("fault", "exit_code", "error"),
    [
        (ValueError("a secret"), 1, "cave_internal_error"),
        (StoreError("the disk is full"), 1, "cave_store_failed"),
        (KeyboardInterrupt(), 130, None),
    ],
)
def test_every_fault_has_its_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    fault: BaseException,
    exit_code: int,
    error: str | None,
) -> None:
    def faulty_store(_: Path) -> Store:
        raise fault

    monkeypatch.setattr(service, "open_store", faulty_store)
    monkeypatch.setattr(sys, "argv", ["cavemem", "recall", "gateway"])
    assert cli.main() == exit_code
    printed, said = capfd.readouterr()
    assert printed == ""
    assert (json.loads(said.splitlines()[-1])["error"] if said else None) == error


def test_an_answer_that_nobody_reads_is_no_crash(cavemem: CommandLine) -> None:
    for arguments in (["help"], ["remember", "a fact"], ["history", memory_id("a fact")]):
        reader, writer = os.pipe()
        os.close(reader)
        command = [sys.executable, "-m", "cavemem_mcp", *arguments]
        finished = subprocess.run(
            command, stdout=writer, stderr=subprocess.PIPE, env=cavemem.environment(), check=False, timeout=60
        )
        os.close(writer)
        assert finished.returncode == 1
        assert finished.stderr == b"cavemem: the answer could not be written: Broken pipe\n"


@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-", "2>/dev/full"])
def test_an_error_that_cannot_be_told_keeps_its_exit_code(cavemem: CommandLine, closed: str) -> None:
    command = f"'{sys.executable}' -m cavemem_mcp remember --stdin {closed}"
    finished = subprocess.run(
        ["sh", "-c", command], input=b"a" * 300_000, env=cavemem.environment(), check=False, timeout=60
    )
    assert finished.returncode == 65


def test_closed_standard_input_is_a_clear_error(cavemem: CommandLine) -> None:
    command = f"'{sys.executable}' -m cavemem_mcp remember --stdin <&-"
    finished = subprocess.run(
        ["sh", "-c", command], capture_output=True, env=cavemem.environment(), check=False, timeout=60
    )
    assert finished.returncode == 1
    assert json.loads(finished.stderr)["message"].startswith("text: standard input cannot be read")


def test_on_a_terminal_it_says_that_it_serves(cavemem: CommandLine) -> None:
    terminal, stdin = pty.openpty()
    command = [sys.executable, "-m", "cavemem_mcp"]
    with subprocess.Popen(
        command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cavemem.environment()
    ) as server:
        assert server.stderr is not None
        assert b"serving MCP on standard input" in server.stderr.readline()
        os.write(terminal, b"\x04")
        assert server.wait(timeout=30) == 0
    os.close(stdin)
    os.close(terminal)


def test_python_dash_m_and_the_console_scripts_are_the_same_program() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"cavemem": "cavemem_mcp.cli:main", "cavemem-mcp": "cavemem_mcp.cli:main"}
