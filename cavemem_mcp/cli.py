"""The command line: configuration, wiring and the debug harness. The only reader of the environment.

Serving is its main job; the debug commands are one table over the six operations. Whatever a command answers goes to
stdout, as bytes of UTF-8 in every locale, and everything else to stderr.
"""

import functools
import gc
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final

from cavemem_mcp import __version__
from cavemem_mcp.console import Result, UsageError, answer, decoded, indented, line, refuse_more, say, show, split
from cavemem_mcp.errors import INTERNAL_ERROR_ID, CaveError, InvalidArgumentsError, MemoryTooLargeError, StoreError
from cavemem_mcp.model import (
    LIMIT_DEFAULT,
    MEMORY_BYTES_MAX,
    TOKEN_BUDGET_DEFAULT,
    budget_from_wire,
    checked_integer,
    limit_from_wire,
)
from cavemem_mcp.recovery import BYTES_MAX
from cavemem_mcp.service import Cavemem, open_memory
from cavemem_mcp.settings import FLAGS, help_lines, http_settings

SETTINGS: Final = ("CAVEMAN_HOME", "CAVEMAN_CCR_MAX_BYTES")
"""The environment variables that every command reads."""

HELP: Final = f"""\
cavemem {__version__}: durable memory for AI agents, as an MCP server

Serve:
  cavemem [mcp]                            MCP on standard input and output
  cavemem mcp --transport streamable-http [options]
                                           MCP over HTTP at /mcp, for programs on this machine and agents elsewhere
  cavemem token new <name> [--store <name>] [--read-only]
                                           make a secret for an agent elsewhere, and its entry of the token file

Try:
  cavemem demo                             play through all operations on a temporary store

Put it into a client:
  cavemem config <client>                  print its configuration, with the path of this cavemem; changes nothing
                                           (claude-desktop, claude-code, vscode, cursor, codex, gemini, http)

Look into the store (JSON on standard output):
  cavemem remember <text>|--stdin          store a fact
  cavemem recall <query> [limit] [token_budget]
                                           find facts; limit 0 is the default 5, token_budget 0 is no cap
  cavemem supersede <id> <text>|--stdin    replace a fact that is no longer true
  cavemem history <id>                     show every version of a fact
  cavemem forget <id>                      delete one version for good
  cavemem recover <handle>                 write the exact original of a shortened hit

See and move all of it:
  cavemem status [--json]                  how much there is, since when, how large
  cavemem list [--since DATE] [--contains TEXT] [--expired] [--limit N] [--json]
                                           memories, newest first; --expired adds superseded versions
  cavemem export FILE|-                    write every chain as a line of JSON
  cavemem import FILE|-                    add an export, the official memory server's file, or text and Markdown
                                           with one memory a paragraph or bullet; twice is the same as once
  cavemem backup FILE                      copy both files into a tar archive, also while serving
  cavemem doctor [--json] [--rebuild-index]
                                           say what is wrong with it and what to do, whatever state it is in; changes
                                           nothing, except that --rebuild-index first makes the recall index anew

For the hooks of Claude Code, Codex and Gemini CLI:
  cavemem hook                             tell a new session, and each prompt, what is remembered about it; reads the
                                           event on standard input; off unless CAVEMAN_HOOK=on

Quote a text of several words; give one that begins with - after -- or by --stdin.
Also: cavemem help, cavemem --version.

Environment:
  CAVEMAN_HOME             folder whose subfolder mem holds the memories (~/.caveman)
  CAVEMAN_CCR_MAX_BYTES    size that the kept originals of shortened hits may reach ({BYTES_MAX})
  CAVEMAN_HOOK             on lets cavemem hook answer

  CAVEMAN_TRANSPORT        what mcp serves where --transport does not say so (stdio)

Options over HTTP, each also as an environment variable (--max-body-bytes is CAVEMAN_MAX_BODY_BYTES):
{help_lines()}

Exit status: 0; 1 failure, something that import skipped, a problem that doctor found, or wrong usage; 2 unknown
command; 65 memory too large.
"""

logger = logging.getLogger(__name__)


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


COMMANDS_ON_ALL: Final = ("status", "list", "export", "import", "backup")
"""Those of `commands`, which look at all memories or move them."""


def main() -> int:
    """Run the command line and return its exit status."""
    gc.freeze()  # what is imported by now stays: nothing looks through it again, at the exit either
    try:
        return _run(sys.argv[1:])
    except UsageError as error:
        say(f"cavemem: {error}\nFor help run: cavemem help")
        return error.exit_code
    except CaveError as error:
        say(line(error.as_json()))
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except Exception:
        logger.exception("the command failed unexpectedly")
        say(line({"error": INTERNAL_ERROR_ID, "message": "a defect of cavemem; its traceback is above"}))
        return 1


def _run(arguments: Sequence[str]) -> int:
    name, rest = (arguments[0], arguments[1:]) if arguments else ("mcp", arguments)
    if name in ("help", "--help", "-h"):
        return answer(HELP.encode())
    if name == "--version":
        return answer(f"cavemem {__version__}\n".encode())
    if name.startswith("-"):
        raise UsageError("options stand after a command")
    if name not in ("mcp", "demo", "config", "hook", "token", "doctor", *COMMANDS, *COMMANDS_ON_ALL):
        raise UsageError(f"unknown command {name!r}", exit_code=2)
    if not {"--help", "-h"}.isdisjoint(takewhile(lambda argument: argument != "--", rest)):
        return answer(HELP.encode())
    own = {"mcp": _serve, "demo": _demo, "hook": _hook, "config": _config, "token": _token, "doctor": _doctor}
    if name in own:
        return own[name](rest)
    if name in COMMANDS_ON_ALL:
        from cavemem_mcp import commands

        return commands.run(name, rest, functools.partial(_configured(), _home() / "mem"))
    return _debug(COMMANDS[name], rest)


def _serve(arguments: Sequence[str]) -> int:
    words, options = split(arguments, {"--transport": True, **dict.fromkeys(FLAGS, True)})
    refuse_more(words)
    kind = options.pop("--transport", None) or os.environ.get("CAVEMAN_TRANSPORT") or "stdio"
    if kind not in ("stdio", "streamable-http"):
        raise UsageError("--transport is stdio or streamable-http")
    if kind == "stdio" and options:
        raise UsageError(f"{next(iter(options))} needs --transport streamable-http")
    settings = http_settings(options, os.environ) if kind == "streamable-http" else None
    configured = _configured(store_bytes_max=settings.max_store_bytes if settings else None)
    if kind == "stdio" and sys.stdin is not None and sys.stdin.isatty():
        say("cavemem: serving MCP on standard input and output; end it with Ctrl-D. For help run: cavemem help")

    gc.disable()  # the imports below leave hundreds of thousands of objects that all stay
    from cavemem_mcp import transport

    if settings is not None:
        from cavemem_mcp import http

        gc.enable()
        gc.freeze()
        return http.serve_http(_home(), configured, settings)
    gc.enable()
    gc.freeze()
    return transport.serve_stdio(functools.partial(configured, _home() / "mem"))


def _demo(arguments: Sequence[str]) -> int:
    words, _ = split(arguments, {})
    refuse_more(words)
    from cavemem_mcp import demo

    return demo.main(show)


def _hook(_: Sequence[str]) -> int:
    if os.environ.get("CAVEMAN_HOOK", "").lower() not in ("1", "on", "true", "yes"):
        return 0
    with suppress(Exception):  # nothing that goes wrong may show in a host's session
        from cavemem_mcp import hook

        return hook.main(_home())
    return 0


def _config(arguments: Sequence[str]) -> int:
    from cavemem_mcp.integrations import recipes

    words, _ = split(arguments, {})
    refuse_more(words[1:])
    if not words or words[0] not in recipes.CLIENTS:
        raise UsageError(f"name the client: {', '.join(recipes.CLIENTS)}")
    settings = {name: os.environ[name] for name in SETTINGS if os.environ.get(name)}
    if "CAVEMAN_HOME" in settings:  # clients start the program in folders of their own
        settings["CAVEMAN_HOME"] = str(Path(settings["CAVEMAN_HOME"]).absolute())
    command = [*recipes.installed_command(sys.argv[0]), "mcp"]
    recipe = recipes.CLIENTS[words[0]](
        recipes.Launch(
            command=[decoded("command", os.fsencode(word)) for word in command],
            environment={name: decoded(name, os.fsencode(value)) for name, value in settings.items()},
            url=f"http://{FLAGS['--host'].default}:{FLAGS['--port'].default}/mcp",
        )
    )
    status = answer(recipe.snippet.encode())
    say(recipe.advice)
    return status


def _token(arguments: Sequence[str]) -> int:
    words, options = split(arguments, {"--store": True, "--read-only": False})
    if words[:1] != ["new"] or len(words) < 2:
        raise UsageError("write: cavemem token new <name> [--store <name>] [--read-only]")
    refuse_more(words[2:])
    from cavemem_mcp import credentials

    secret, credential = credentials.new_credential(
        words[1], store=options.get("--store"), may_write="--read-only" not in options
    )
    return answer(f"{secret}\n\n{credential.as_toml()}".encode())


def _doctor(arguments: Sequence[str]) -> int:
    from cavemem_mcp import commands

    return commands.examine(arguments, _home() / "mem")


def _debug(command: Command, arguments: Sequence[str]) -> int:
    takes_text = "text" in command.required
    words, options = split(arguments, {"--stdin": False} if takes_text else {})
    required = command.required[:-1] if options else command.required
    names = required + command.optional
    refuse_more(words[len(names) :])
    if len(words) < len(required):
        missing = required[len(words)]
        raise UsageError(f"{missing} is missing" + ("; give it here or by --stdin" if missing == "text" else ""))
    given = {name: decoded(name, os.fsencode(word)) for name, word in zip(names, words, strict=False)}
    if options:
        given["text"] = _standard_input()
    memory = _configured()(_home() / "mem")
    try:
        result = command.run(memory, given)
    finally:
        memory.close()
    if isinstance(result, bytes):
        return answer(result)
    return answer(indented(result))


def _home() -> Path:
    try:  # clients' configuration files do not expand ~
        home = Path(os.environ.get("CAVEMAN_HOME", "").strip() or "~/.caveman").expanduser()
    except RuntimeError:
        raise StoreError("no home folder is known; set CAVEMAN_HOME to the folder that shall hold mem") from None
    decoded("CAVEMAN_HOME", os.fsencode(home))  # SQLite takes names in UTF-8 only
    return home


def _configured(*, store_bytes_max: int | None = None) -> Callable[[Path], Cavemem]:
    """Return what opens the memory in a folder, as the environment says."""
    bytes_max = os.environ.get("CAVEMAN_CCR_MAX_BYTES") or BYTES_MAX
    return functools.partial(
        open_memory,
        recovery_bytes_max=checked_integer("CAVEMAN_CCR_MAX_BYTES", bytes_max),
        store_bytes_max=store_bytes_max,
    )


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
    return decoded("text", text)
