"""The command line: configuration, wiring and the debug harness. The only reader of the environment.

Serving is its main job; the debug commands are one table over the six operations. Whatever a command answers goes to
stdout, as bytes of UTF-8 in every locale, and everything else to stderr.
"""

import functools
import gc
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final, Protocol

from cavemem_mcp import __version__
from cavemem_mcp.errors import INTERNAL_ERROR_ID, CaveError, InvalidArgumentsError, MemoryTooLargeError, StoreError
from cavemem_mcp.model import (
    LIMIT_DEFAULT,
    MEMORY_BYTES_MAX,
    TOKEN_BUDGET_DEFAULT,
    Json,
    budget_from_wire,
    checked_integer,
    limit_from_wire,
)
from cavemem_mcp.recovery import BYTES_MAX, RecoveryStore
from cavemem_mcp.service import Cavemem
from cavemem_mcp.store import open_store

HOST_DEFAULT: Final = "127.0.0.1"
PORT_DEFAULT: Final = 8765
PORT_MAX: Final = 65535

HELP: Final = f"""\
cavemem {__version__}: durable memory for AI agents, as an MCP server

Serve:
  cavemem [mcp]                            MCP on standard input and output
  cavemem mcp --transport streamable-http [--host {HOST_DEFAULT}] [--port {PORT_DEFAULT}]
                                           MCP over HTTP at /mcp, for programs on this machine

Try:
  cavemem demo                             play through all operations on a temporary store

Look into the store (JSON on standard output):
  cavemem remember <text>|--stdin          store a fact
  cavemem recall <query> [limit] [token_budget]
                                           find facts; limit 0 is the default 5, token_budget 0 is no cap
  cavemem supersede <id> <text>|--stdin    replace a fact that is no longer true
  cavemem history <id>                     show every version of a fact
  cavemem forget <id>                      delete one version for good
  cavemem recover <handle>                 write the exact original of a shortened hit

Quote a text of several words; give one that begins with - after -- or by --stdin.
Also: cavemem help, cavemem --version.

Environment:
  CAVEMAN_HOME             folder whose subfolder mem holds the memories (~/.caveman)
  CAVEMAN_CCR_MAX_BYTES    size that the kept originals of shortened hits may reach ({BYTES_MAX})

Exit status: 0; 1 failure or wrong usage; 2 unknown command; 65 memory too large.
"""

logger = logging.getLogger(__name__)


class UsageError(Exception):
    """The command line cannot be understood; `exit_code` tells an unknown command from a misused one."""

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Result(Protocol):
    """What every operation returns."""

    def as_json(self) -> Json:
        """Return the contract's result object."""
        ...


@dataclass(frozen=True, kw_only=True)
class Command:
    """One debug command: the names of its arguments, in order, and the operation that takes them."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    run: Callable[[Cavemem, Mapping[str, str]], Result | bytes]


def _recall(memory: Cavemem, given: Mapping[str, str]) -> Result:
    limit = checked_integer("limit", given.get("limit", LIMIT_DEFAULT))
    token_budget = checked_integer("token_budget", given.get("token_budget", TOKEN_BUDGET_DEFAULT))
    return memory.recall(given["query"], limit=limit_from_wire(limit), token_budget=budget_from_wire(token_budget))


COMMANDS: Final = {
    "remember": Command(required=("text",), run=lambda memory, given: memory.remember(given["text"])),
    "recall": Command(required=("query",), optional=("limit", "token_budget"), run=_recall),
    "supersede": Command(
        required=("id", "text"), run=lambda memory, given: memory.supersede(given["id"], given["text"])
    ),
    "history": Command(required=("id",), run=lambda memory, given: memory.history(given["id"])),
    "forget": Command(required=("id",), run=lambda memory, given: memory.forget(given["id"])),
    "recover": Command(required=("handle",), run=lambda memory, given: memory.original(given["handle"])),
}


def main() -> int:
    """Run the command line and return its exit status."""
    gc.freeze()  # what is imported by now stays: nothing looks through it again, at the exit either
    try:
        return _run(sys.argv[1:])
    except UsageError as error:
        _say(f"cavemem: {error}\nFor help run: cavemem help")
        return error.exit_code
    except CaveError as error:
        _say(_line(error.as_json()))
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except Exception:
        logger.exception("the command failed unexpectedly")
        _say(_line({"error": INTERNAL_ERROR_ID, "message": "a defect of cavemem; its traceback is above"}))
        return 1


def open_memory(folder: str | Path, *, recovery_bytes_max: int = BYTES_MAX) -> Cavemem:
    """Open the memory in a folder, making the folder where it is missing.

    Args:
        folder: Holds the memories and the originals of shortened hits, and nothing else.
        recovery_bytes_max: Size that the kept originals may reach.

    Raises:
        StoreError: The files cannot be used as they are.
    """
    folder = Path(folder)
    store = open_store(folder)
    try:
        memory = Cavemem(store, RecoveryStore(folder, bytes_max=recovery_bytes_max))
    except BaseException:
        store.close()
        raise
    try:
        memory.finish_erasures()
    except StoreError as error:
        logger.warning("what was forgotten is not erased everywhere yet: %s", error.message)
    return memory


def _run(arguments: Sequence[str]) -> int:
    name, rest = (arguments[0], arguments[1:]) if arguments else ("mcp", arguments)
    if name in ("help", "--help", "-h"):
        return _answer(HELP.encode())
    if name == "--version":
        return _answer(f"cavemem {__version__}\n".encode())
    if name.startswith("-"):
        raise UsageError("options stand after a command")
    if name not in ("mcp", "demo", *COMMANDS):
        raise UsageError(f"unknown command {name!r}", exit_code=2)
    if not {"--help", "-h"}.isdisjoint(takewhile(lambda argument: argument != "--", rest)):
        return _answer(HELP.encode())
    if name == "mcp":
        return _serve(rest)
    if name == "demo":
        return _demo(rest)
    return _debug(COMMANDS[name], rest)


def _serve(arguments: Sequence[str]) -> int:
    words, options = _split(arguments, {"--transport": True, "--host": True, "--port": True})
    _refuse_more(words)
    kind = options.pop("--transport", "stdio")
    if kind not in ("stdio", "streamable-http"):
        raise UsageError("--transport is stdio or streamable-http")
    if kind == "stdio" and options:
        raise UsageError("--host and --port need --transport streamable-http")
    host = options.get("--host", HOST_DEFAULT)
    port = checked_integer("--port", options.get("--port", PORT_DEFAULT), maximum=PORT_MAX)
    configured = _configured()
    if kind == "stdio" and sys.stdin is not None and sys.stdin.isatty():
        _say("cavemem: serving MCP on standard input and output; end it with Ctrl-D. For help run: cavemem help")

    gc.disable()  # the imports below leave hundreds of thousands of objects that all stay
    from cavemem_mcp import transport

    gc.enable()
    gc.freeze()
    if kind == "stdio":
        return transport.serve_stdio(configured)
    return transport.serve_http(configured, host=host, port=port)


def _demo(arguments: Sequence[str]) -> int:
    words, _ = _split(arguments, {})
    _refuse_more(words)
    from cavemem_mcp import demo

    return demo.main(_show)


def _debug(command: Command, arguments: Sequence[str]) -> int:
    takes_text = "text" in command.required
    words, options = _split(arguments, {"--stdin": False} if takes_text else {})
    required = command.required[:-1] if options else command.required
    names = required + command.optional
    _refuse_more(words[len(names) :])
    if len(words) < len(required):
        missing = required[len(words)]
        raise UsageError(f"{missing} is missing" + ("; give it here or by --stdin" if missing == "text" else ""))
    given = {name: _decoded(name, os.fsencode(word)) for name, word in zip(names, words, strict=False)}
    if options:
        given["text"] = _standard_input()
    memory = _configured()()
    try:
        result = command.run(memory, given)
    finally:
        memory.close()
    if isinstance(result, bytes):
        return _answer(result)
    return _answer((json.dumps(result.as_json(), indent=2, ensure_ascii=False) + "\n").encode())


def _configured() -> Callable[[], Cavemem]:
    """Return what opens the memory that the environment names."""
    try:  # clients' configuration files do not expand ~
        home = Path(os.environ.get("CAVEMAN_HOME", "").strip() or "~/.caveman").expanduser()
    except RuntimeError:
        raise StoreError("no home folder is known; set CAVEMAN_HOME to the folder that shall hold mem") from None
    _decoded("CAVEMAN_HOME", os.fsencode(home))  # SQLite takes names in UTF-8 only
    bytes_max = os.environ.get("CAVEMAN_CCR_MAX_BYTES") or BYTES_MAX
    return functools.partial(
        open_memory, home / "mem", recovery_bytes_max=checked_integer("CAVEMAN_CCR_MAX_BYTES", bytes_max)
    )


def _split(arguments: Sequence[str], takes_value: Mapping[str, bool]) -> tuple[list[str], dict[str, str]]:
    """Split arguments into words and options (`--name`, `--name value`, `--name=value`); after `--` all are words."""
    words: list[str] = []
    options: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            words.extend(rest)
        elif not argument.startswith("-") or argument[1:].isdigit():  # a negative number is a word
            words.append(argument)
        else:
            name, equals, value = argument.partition("=")
            if name not in takes_value or (equals and not takes_value[name]):
                raise UsageError(f"{name} is no option here; give a text that begins with - after --")
            if takes_value[name] and not (value := value or next(rest, "")):
                raise UsageError(f"{name} needs a value")
            options[name] = value
    return words, options


def _refuse_more(words: Sequence[str]) -> None:
    if words:
        raise UsageError("too many arguments; quote a text or query of several words")


def _standard_input() -> str:
    """Read a text from stdin exactly as it is, but no more than tells that it is too large."""
    try:
        with open(0, "rb", closefd=False) as stream:
            text = stream.read(MEMORY_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidArgumentsError(f"text: standard input cannot be read: {error.strerror}") from error
    if len(text) > MEMORY_BYTES_MAX:
        raise MemoryTooLargeError(
            f"text: standard input holds more than the {MEMORY_BYTES_MAX} bytes that fit in one memory; "
            "nothing was stored: split it or store a summary"
        )
    return _decoded("text", text)


def _decoded(name: str, given: bytes) -> str:
    try:
        return given.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgumentsError(f"{name}: is not valid UTF-8 at byte {error.start}; send UTF-8") from None


def _answer(answer: bytes) -> int:
    """Write a command's answer to stdout; return the exit status."""
    try:
        _write(1, answer)
    except OSError as error:
        _say(f"cavemem: the answer could not be written: {error.strerror}")
        return 1
    return 0


def _show(line: str) -> None:
    """Write a line to stdout, as long as somebody reads it."""
    with suppress(OSError):
        _write(1, line.encode() + b"\n")


def _say(message: str) -> None:
    """Write a message to stderr; that nobody can read it there never changes the exit status."""
    with suppress(OSError):
        _write(2, message.encode(errors="backslashreplace") + b"\n")


def _write(descriptor: int, message: bytes) -> None:
    """Write everything, unbuffered: nothing is left for Python to flush, and to fail at, when it exits."""
    rest = memoryview(message)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _line(error: Mapping[str, object]) -> str:
    return json.dumps(error, ensure_ascii=False)
