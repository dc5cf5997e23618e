"""How the command line reads its arguments and speaks: answers to stdout, everything else to stderr, as UTF-8 bytes."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from cavemem_mcp.errors import InvalidArgumentsError
from cavemem_mcp.model import Json


class UsageError(Exception):
    """The command line cannot be understood; `exit_code` tells an unknown command from a misused one."""

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Result(Protocol):
    """What has a JSON object to show."""

    def as_json(self) -> Json:
        """Return the object."""
        ...


def split(arguments: Sequence[str], takes_value: Mapping[str, bool]) -> tuple[list[str], dict[str, str]]:
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


def refuse_more(words: Sequence[str]) -> None:
    """Refuse words that a command does not take.

    Raises:
        UsageError: There are some.
    """
    if words:
        raise UsageError("too many arguments; quote a text or query of several words")


def decoded(name: str, given: bytes) -> str:
    """Return the bytes of an argument as text.

    Raises:
        InvalidArgumentsError: They are not UTF-8.
    """
    try:
        return given.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgumentsError(f"{name}: is not valid UTF-8 at byte {error.start}; send UTF-8") from None


def answer(answer: bytes) -> int:
    """Write a command's answer to stdout; return the exit status."""
    try:
        write(1, answer)
    except OSError as error:
        say(f"cavemem: the answer could not be written: {error.strerror}")
        return 1
    return 0


def show(line: str) -> None:
    """Write a line to stdout, as long as somebody reads it."""
    with suppress(OSError):
        write(1, line.encode() + b"\n")


def say(message: str) -> None:
    """Write a message to stderr; that nobody can read it there never changes the exit status."""
    with suppress(OSError):
        write(2, message.encode(errors="backslashreplace") + b"\n")


def write(descriptor: int, message: bytes) -> None:
    """Write everything, unbuffered: nothing is left for Python to flush, and to fail at, when it exits."""
    rest = memoryview(message)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def indented(result: Result) -> bytes:
    """Return a result as JSON for people."""
    return (json.dumps(result.as_json(), indent=2, ensure_ascii=False) + "\n").encode()


def line(error: Mapping[str, object]) -> str:
    """Return an error as JSON on one line."""
    return json.dumps(error, ensure_ascii=False)
