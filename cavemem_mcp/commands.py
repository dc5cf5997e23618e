"""The commands that look at all memories or move them: what they take, and how they answer people."""

import functools
import os
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from cavemem_mcp import overview, portability
from cavemem_mcp.console import UsageError, answer, decoded, indented, refuse_more, say, split, write
from cavemem_mcp.errors import InvalidArgumentsError
from cavemem_mcp.model import checked_integer
from cavemem_mcp.service import Cavemem

PROGRESS_SECONDS: Final = 0.2
"""How often the progress on a terminal changes."""

OpenMemory = Callable[[], Cavemem]


def run(name: str, arguments: Sequence[str], open_memory: OpenMemory) -> int:
    """Run one of the commands and return its exit status."""
    return _COMMANDS[name](arguments, open_memory)


def examine(arguments: Sequence[str], folder: Path) -> int:
    """Run `cavemem doctor` on a folder and return its exit status."""
    from cavemem_mcp import doctor

    words, options = split(arguments, {"--json": False, "--rebuild-index": False})
    refuse_more(words)
    if "--rebuild-index" in options:
        doctor.rebuild_index(folder)
    report = doctor.examine(folder)
    exit_status = answer(indented(report) if "--json" in options else report.as_text().encode())
    return exit_status or (0 if report.is_healthy else 1)


def _status(arguments: Sequence[str], open_memory: OpenMemory) -> int:
    words, options = split(arguments, {"--json": False})
    refuse_more(words)
    with closing(open_memory()) as memory:
        status = overview.status(memory)
    return answer(indented(status) if options else status.as_text().encode())


def _list(arguments: Sequence[str], open_memory: OpenMemory) -> int:
    values = {"--since": True, "--contains": True, "--limit": True}
    words, options = split(arguments, values | {"--expired": False, "--json": False})
    refuse_more(words)
    limit = checked_integer("--limit", options.get("--limit", overview.LIST_LIMIT_DEFAULT))
    since, contains = (decoded(name, os.fsencode(options.get(name, ""))) for name in ("--since", "--contains"))
    with closing(open_memory()) as memory:
        listing = overview.listing(memory, since=since, contains=contains, expired="--expired" in options, limit=limit)
    if "--json" in options:
        return answer(indented(listing))
    exit_status = answer(listing.as_table(_columns()).encode())
    if listing.more:
        say(f"cavemem: there are more than these {limit}; see more with --limit")
    return exit_status


def _export(arguments: Sequence[str], open_memory: OpenMemory) -> int:
    file = _file(arguments)
    with closing(open_memory()) as memory, _progress("exported") as progress:
        if file == "-":
            try:
                exported = portability.export(memory, functools.partial(write, 1), progress)
            except OSError as error:
                say(f"cavemem: the answer could not be written: {error.strerror}")
                return 1
        else:
            with portability.new_file(Path(file)) as stream:
                exported = portability.export(memory, stream.write, progress)
    if exported.broken:
        say(f"cavemem: {exported.broken} versions belong to broken chains; each is a chain of its own in the export")
    if file == "-":
        return 0
    return answer(f"exported {exported.memories:,} memories in {exported.chains:,} chains to {file}\n".encode())


def _import(arguments: Sequence[str], open_memory: OpenMemory) -> int:
    file = _file(arguments)
    try:
        with (
            open(0 if file == "-" else file, "rb", closefd=file != "-") as stream,
            closing(open_memory()) as memory,
            _progress("imported") as progress,
        ):
            imported = portability.import_(memory, stream, time.time_ns(), progress)
    except OSError as error:
        raise InvalidArgumentsError(f"{file}: cannot be read: {error.strerror}") from error
    lines = [f"imported {imported.memories:,} memories in {imported.chains:,} chains"]
    lines += [f"{imported.present:,} chains were there already"] if imported.present else []
    lines += [f"skipped line {skipped.line}: {skipped.reason}" for skipped in imported.skipped]
    exit_status = answer("".join(f"{line}\n" for line in lines).encode())
    return 1 if imported.skipped else exit_status


def _backup(arguments: Sequence[str], open_memory: OpenMemory) -> int:
    file = _file(arguments)
    if file == "-":
        raise UsageError("a backup cannot be a pipe; give a FILE")
    with closing(open_memory()) as memory:
        size = portability.backup(memory, Path(file))
    return answer(f"backed up {size:,} bytes to {file}\n".encode())


_COMMANDS: Final[dict[str, Callable[[Sequence[str], OpenMemory], int]]] = {
    "status": _status,
    "list": _list,
    "export": _export,
    "import": _import,
    "backup": _backup,
}


def _file(arguments: Sequence[str]) -> str:
    words, _ = split(["--", *arguments] if list(arguments) == ["-"] else arguments, {})
    refuse_more(words[1:])
    if not words:
        raise UsageError("FILE is missing; - is standard input or output")
    return words[0]


@contextmanager
def _progress(done: str) -> Generator[Callable[[int], None]]:
    """Show on a terminal, and nowhere else, how many memories are done."""
    is_shown = sys.stderr is not None and sys.stderr.isatty()
    shown = 0.0

    def progress(count: int) -> None:
        nonlocal shown
        if is_shown and time.monotonic() - shown > PROGRESS_SECONDS:
            shown = time.monotonic()
            with suppress(OSError):
                write(2, f"\r{done} {count:,} memories".encode())

    try:
        yield progress
    finally:
        if shown:
            with suppress(OSError):
                write(2, b"\r\033[K")


def _columns() -> int | None:
    """Return the width of the terminal that reads the answers; None where it is no terminal."""
    with suppress(OSError):
        return os.get_terminal_size(1).columns or None
    return None
