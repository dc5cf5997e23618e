"""Files of memories: ours, the official memory server's, and plain text or Markdown. Pure; stores nothing.

Ours is JSON Lines, one chain a line: `{"history": [Memory, …]}` with every version of one fact, oldest first, as the
operation history returns it. Each line stands alone, so files may be joined, cut or sorted by line.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Final, NamedTuple, cast

from cavemem_mcp.errors import CaveError
from cavemem_mcp.model import MEMORY_BYTES_MAX, Memory, checked_text, memory_id, timestamp

LINE_BYTES_MAX: Final = 256 * 1024 * 1024
"""Longest line that is read: a thousand of the largest memories in one chain."""

_FIELDS: Final = frozenset(Memory.__dataclass_fields__)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")

_FENCE: Final = re.compile(r" {0,3}(```+|~~~+)")
_RULE: Final = re.compile(r"\s*([-*_=])(\s*\1){2,}\s*")
_HEADING: Final = re.compile(r" {0,3}#{1,6}(\s|$)")
_BULLET: Final = re.compile(r"\s*([-*+•]|\d{1,9}[.)])\s+(?=\S)")


class Chain(NamedTuple):
    """Every version of one fact, oldest first, and the line where it begins."""

    line: int
    memories: tuple[Memory, ...]


class Skipped(NamedTuple):
    """Something that is no memory, where it begins, and why."""

    line: int
    reason: str


class _Line(NamedTuple):
    number: int
    text: str
    problem: str | None = None


Found = Chain | Skipped


def as_line(chain: Sequence[Memory]) -> bytes:
    """Return a chain as a line of our format."""
    history = {"history": [memory.as_json() for memory in chain]}
    return json.dumps(history, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def read(stream: BinaryIO, now_ns: int) -> Iterator[Found]:
    """Read a file of any of the formats, which its first line tells; yield what is in it, in order.

    Args:
        stream: The file.
        now_ns: When memories without a time of their own count as stored, in nanoseconds since 1970; each a nanosecond
            after the one before.
    """
    new = _numbered(now_ns)
    lines = _lines(stream)
    for first in lines:
        if first.problem or first.text.strip():
            rest = _with_first(first, lines)
            if first.text.lstrip().startswith("{"):
                yield from _json_lines(rest, new)
            else:
                yield from _blocks(rest, new)


def _with_first(first: _Line, rest: Iterator[_Line]) -> Iterator[_Line]:
    yield first
    yield from rest


def _numbered(now_ns: int) -> Callable[[int, str], Found]:
    """Return what makes a new memory of a text, each a nanosecond after the one before."""
    made = 0

    def new(line: int, text: str) -> Found:
        nonlocal made
        try:
            checked_text("text", text)
        except CaveError as error:
            return Skipped(line, error.message)
        now = timestamp(now_ns + made)
        made += 1
        return Chain(line, (Memory(id=memory_id(text), text=text, created_at=now, valid_from=now),))

    return new


def _lines(stream: BinaryIO) -> Iterator[_Line]:
    number = 0
    while data := stream.readline(LINE_BYTES_MAX):
        number += 1
        if not data.endswith(b"\n") and len(data) == LINE_BYTES_MAX:
            while data and not data.endswith(b"\n"):
                data = stream.readline(LINE_BYTES_MAX)
            yield _Line(number, "", f"is longer than {LINE_BYTES_MAX} bytes")
            continue
        try:
            yield _Line(number, data.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n"))
        except UnicodeDecodeError:
            yield _Line(number, "", "is not valid UTF-8")


def _json_lines(lines: Iterator[_Line], new: Callable[[int, str], Found]) -> Iterator[Found]:
    for number, text, problem in lines:
        if problem:
            yield Skipped(number, problem)
        elif text.strip():
            yield from _contents(number, text, new)


def _contents(line: int, text: str, new: Callable[[int, str], Found]) -> Iterator[Found]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        yield Skipped(line, "is not JSON; the file may be cut off")
        return
    match content:
        case {"history": [*versions]}:
            yield _chain(line, versions)
        case {"type": "entity", "name": str(name), "entityType": str(kind), "observations": [*observations]}:
            subject = f"{name} ({kind})" if kind else name
            if not observations:
                yield new(line, subject)
            for observation in observations:
                if isinstance(observation, str):
                    yield new(line, f"{subject}: {observation}")
                else:
                    yield Skipped(line, "an observation is no string")
        case {"type": "relation", "from": str(subject), "relationType": str(verb), "to": str(target)}:
            yield new(line, f"{subject} {verb} {target}")
        case _:
            yield Skipped(line, "is neither a history nor an entity or relation")


def _chain(line: int, versions: list[Any]) -> Found:
    try:
        memories = tuple(_memory(version) for version in versions)
    except (CaveError, ValueError) as error:
        return Skipped(line, str(error))
    if not memories:
        return Skipped(line, "the history is empty")
    ids = [memory.id for memory in memories]
    earlier = [None, *ids[:-1]]
    later = [*ids[1:], None]
    if (
        len(set(ids)) < len(ids)
        or [memory.supersedes for memory in memories] != earlier
        or [memory.superseded_by for memory in memories] != later
    ):
        return Skipped(line, "the versions do not form a chain, oldest first")
    if any(memory.is_current for memory in memories[:-1]):
        return Skipped(line, "a superseded version has no valid_until")
    return Chain(line, memories)


def _memory(version: object) -> Memory:
    if not isinstance(version, dict):
        raise ValueError("a version is no object")  # noqa: TRY004 the file is wrong, not the caller
    fields = {name: value for name, value in cast("dict[str, Any]", version).items() if value is not None}
    if not fields.keys() <= _FIELDS or not all(isinstance(value, str) for value in fields.values()):
        raise ValueError("a version has a field that is unknown or no string")
    try:
        memory = Memory(**fields)
    except TypeError:
        raise ValueError("a version lacks id, text, created_at or valid_from") from None
    if memory.id != memory_id(checked_text("text", memory.text)):
        raise ValueError("an id is not that of its text")
    for time in (memory.created_at, memory.valid_from, memory.valid_until):
        if time is not None and not _TIME.fullmatch(time):
            raise ValueError("a time is not RFC 3339 in UTC")
    return memory


class _Block:
    """The lines of one paragraph or bullet; of one that is too large, only as many as show that."""

    def __init__(self, line: int, indent: int = 0) -> None:
        self.line = line
        self._indent = indent
        self._lines: list[str] = []
        self._bytes = 0
        self._problem: str | None = None

    def add(self, line: _Line) -> None:
        blanks = len(line.text) - len(line.text.lstrip())
        text = line.text[min(blanks, self._indent) :] if self._lines else line.text
        self._problem = self._problem or line.problem
        if self._bytes <= MEMORY_BYTES_MAX:
            self._lines.append(text)
            self._bytes += len(text.encode()) + 1

    def found(self, new: Callable[[int, str], Found]) -> Iterator[Found]:
        text = "\n".join(self._lines).strip()
        if self._problem:
            yield Skipped(self.line, self._problem)
        elif text:
            yield new(self.line, text)


def _blocks(lines: Iterator[_Line], new: Callable[[int, str], Found]) -> Iterator[Found]:
    """Yield a memory for each paragraph and bullet. Headings and rules only divide; a fenced block is not divided."""
    block = _Block(1)
    fence: str | None = None
    for line in lines:
        text = line.text
        opened = _FENCE.match(text)
        if fence or opened:
            block.add(line)
            if fence is None and opened:
                fence = opened[1]
            elif opened and opened[1].startswith(fence or "") and not text[opened.end() :].strip():
                fence = None
            continue
        bullet = None if _RULE.fullmatch(text) else _BULLET.match(text)
        divides = not line.problem and (not text.strip() or _RULE.fullmatch(text) or _HEADING.match(text))
        if divides or bullet:
            yield from block.found(new)
            block = _Block(line.number + bool(divides), bullet.end() if bullet else 0)
        if not divides:
            block.add(line._replace(text=text[bullet.end() :]) if bullet else line)
    yield from block.found(new)
