"""Read JSON without losing how its numbers were written, and find where its parts are in the text."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

DEPTH_MAX: Final = 200
"""Deeper texts are not taken for JSON: parsers differ in how deep they go."""
PART_SHARE: Final = 2 / 3
"""An object or list that takes more than this share of a part is looked into."""
_TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+')
_SPACE: Final = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\r\n]+')
_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_][\w-]*")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Number(str):
    """A number as it is written."""

    __slots__ = ()


class RepeatedKeyError(ValueError):
    """An object has a key twice, so that its pairs cannot be read back from a mapping."""


Value = dict[str, "Value"] | list["Value"] | str | bool | None
"""A JSON value; its numbers are `Number`."""


def parsed(text: str) -> Value | None:
    """Return the object or list that a text is, or the list of objects that its lines are; None if it is neither.

    An object with a repeated key counts as empty: nothing can be made of it but a smaller text.
    """
    start = text.lstrip()[:1]
    if start not in ("{", "["):
        return None
    try:
        value = read(text)
    except RepeatedKeyError:
        return _loose(text)
    except (ValueError, RecursionError):
        value = _lines(text) if start == "{" else None
    return None if value is None or _is_too_deep(value) else value


def read(text: str) -> Value:
    """Parse JSON; numbers stay as they are written.

    Raises:
        ValueError: It is not JSON, or an object has a key twice.
    """
    return json.loads(
        text, parse_int=Number, parse_float=Number, parse_constant=Number, object_pairs_hook=_without_repetition
    )


def is_lines(text: str) -> bool:
    """Tell whether a text that is JSON has one value a line instead of being one value."""
    try:
        json.loads(text, parse_int=Number, parse_float=Number)
    except ValueError:
        return True
    return False


def _loose(text: str) -> Value | None:
    """Return an empty object for JSON that is not too deep."""
    try:
        value: Value = json.loads(text, parse_int=Number, parse_float=Number)
    except (ValueError, RecursionError):
        return None
    return None if _is_too_deep(value) else {}


def _lines(text: str) -> Value | None:
    values: list[Value] = []
    for line in text.split("\n"):
        if line.strip():
            if not line.lstrip().startswith("{"):
                return None
            try:
                values.append(read(line))
            except (ValueError, RecursionError):
                return None
    return values if len(values) > 1 else None


def _without_repetition(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise RepeatedKeyError
    return value


def _is_too_deep(value: Value) -> bool:
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ())
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def without_spaces(text: str) -> str:
    """Return JSON without the white space between its parts; everything else stays as it is written."""
    return _SPACE.sub(r"\1", text)


def name(path: Sequence[str]) -> str:
    """Write a path with points between its keys; keys that could be misread are JSON strings."""
    return ".".join(key if _PLAIN_KEY.fullmatch(key) else string(key) for key in path)


def string(value: str) -> str:
    """Write a string as JSON; half of a surrogate pair stays an escape."""
    return json.dumps(value, ensure_ascii=_SURROGATE.search(value) is not None)


def dump(value: Value) -> str:
    """Write a value as JSON without white space."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, str):
        return string(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{string(key)}:{dump(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(dump(inner) for inner in value) + "]"
    return {None: "null", True: "true", False: "false"}[value]


class Part(NamedTuple):
    """Neighbouring values of an object or list inside a JSON text, or a whole text.

    Attributes:
        parent: The keys and indices that lead to the object or list that holds them.
        start: Where they begin, with their keys.
        end: Where they end.
    """

    parent: tuple[str, ...]
    start: int
    end: int


class _Member(NamedTuple):
    """A value of an object or list: its key or index, if it has one, and the tokens where it begins, with and without.

    A whole text is a member without a key.
    """

    key: tuple[str, ...]
    first: int
    value: int


class Outline:
    """Where the parts of a JSON text, or of one JSON text a line, are."""

    def __init__(self, text: str) -> None:
        """Find the tokens and the end of each object and list."""
        self.text = text
        matches = list(_TOKENS.finditer(text))
        self.starts = [match.start() for match in matches]
        self.ends = [match.end() for match in matches]
        self._closers: dict[int, int] = {}
        opened: list[int] = []
        for at, start in enumerate(self.starts):
            if text[start] in "[{":
                opened.append(at)
            elif text[start] in "]}":
                self._closers[opened.pop()] = at

    def parts(self, size_max: int) -> list[Part]:
        """Cut into parts of at most `size_max` characters; only single strings and the like are larger."""
        parts: list[Part] = []
        pending: list[tuple[tuple[str, ...], Iterator[_Member]]] = [((), iter(self._roots()))]
        neighbours: Iterator[_Member] | None = None  # of the last part, where it may grow
        while pending:
            path, members = pending[-1]
            member = next(members, None)
            if member is None:
                pending.pop()
                continue
            start, end = self._place(member)
            if self._closers.get(member.value, 0) - member.value >= 2 and end - start > size_max * PART_SHARE:
                pending.append(((*path, *member.key), iter(self._inner(member.value))))
            elif members is neighbours and end - parts[-1].start <= size_max:
                parts[-1] = Part(path, parts[-1].start, end)
            else:
                parts.append(Part(path, start, end))
                neighbours = members if len(pending) > 1 else None  # texts one a line stay apart
        return parts

    def roots(self) -> list[tuple[int, int]]:
        """Return where each of several texts is."""
        return [self._place(root) for root in self._roots()]

    def items(self, path: tuple[str, ...]) -> list[tuple[int, int]]:
        """Return where the items of the list at a path of keys are."""
        value = 0
        for key in path:
            value = next(member.value for member in self._inner(value) if member.key == (key,))
        return [self._place(member) for member in self._inner(value)]

    def _place(self, member: _Member) -> tuple[int, int]:
        """Return where a value begins, with its key, and where it ends."""
        return self.starts[member.first], self.ends[self._closers.get(member.value, member.value)]

    def _roots(self) -> list[_Member]:
        roots: list[_Member] = []
        at = 0
        while at < len(self.starts):
            roots.append(_Member((), at, at))
            at = self._closers.get(at, at) + 1
        return roots

    def _inner(self, value: int) -> list[_Member]:
        """Return the members of an object or list."""
        close = self._closers[value]
        is_object = self.text[self.starts[value]] == "{"
        members: list[_Member] = []
        at = value + 1
        while at < close:
            inner = at + 2 if is_object else at
            key = json.loads(self.text[self.starts[at] : self.ends[at]]) if is_object else str(len(members))
            members.append(_Member((key,), at, inner))
            at = self._closers.get(inner, inner) + 2
        return members
