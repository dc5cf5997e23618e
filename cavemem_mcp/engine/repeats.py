"""Find repetition: lines that are there once more, and runs of lines that differ in numbers and ids alone."""

import re
from typing import Final, NamedTuple

from cavemem_mcp import tokens
from cavemem_mcp.engine.units import MARK, Source, Unit

WINDOW: Final = 3
"""Fewest lines that make a repetition."""
CHARACTERS_MIN: Final = 120
"""Shorter repetition costs no more than its marker and is easier to read."""
RUN_MIN: Final = 5
"""Fewest lines of a run that differ in numbers and ids alone."""
_WORD: Final = re.compile(r"[^\W\d_]{2}")
_WORDS: Final = re.compile(r"\w+")


class Copy(NamedTuple):
    """Lines that repeat earlier ones: the index of the last, and the marker that says so."""

    last: int
    marker: str


def found_in(source: Source) -> dict[int, Copy]:
    """Return the exact repetitions of a text by the index of their first line."""
    lines = source.lines
    first_seen: dict[tuple[str, ...], int] = {}
    found: dict[int, tuple[int, int]] = {}
    row = 0
    while row + WINDOW <= len(lines):
        window = tuple(lines[row : row + WINDOW])
        earlier = first_seen.setdefault(window, row)
        if earlier < row:
            length = WINDOW
            while row + length < len(lines) and lines[earlier + length] == lines[row + length]:
                length += 1
            block = "".join(lines[row : row + length])
            if len(block) >= CHARACTERS_MIN and _WORD.search(block) is not None:
                found[row] = (row + length - 1, earlier)
                row += length
            else:  # what follows inside repeats the same lines, only fewer of them
                row += length - WINDOW + 1
        else:
            row += 1
    return _marked(source, found)


def _marked(source: Source, found: dict[int, tuple[int, int]]) -> dict[int, Copy]:
    spans = [source.span(first, last) for first, (last, _) in found.items()]
    counts = [tokens.count(source.text[start:end]) for start, end in spans]
    copies: dict[int, Copy] = {}
    for (first, (last, earlier)), count in zip(found.items(), counts, strict=True):
        copied = f"{source.number(earlier)}-{source.number(earlier + last - first)}"
        copies[first] = Copy(last, f"{MARK}L{source.number(first)}-{source.number(last)} = L{copied} · {count} tok]")
    return copies


def runs_in(source: Source, asked: set[int]) -> dict[int, Copy]:
    """Return the inside of runs of lines with equal words, by the index of its first line; asked-for lines stay."""
    lines = source.lines
    shapes = [None if row in asked else _shape(line) for row, line in enumerate(lines)]
    found: dict[int, Copy] = {}
    row = 0
    while row < len(lines):
        end = row
        while shapes[row] is not None and end + 1 < len(lines) and shapes[end + 1] == shapes[row]:
            end += 1
        if end - row + 1 >= RUN_MIN:
            like = f"{end - row - 1} like L{source.number(row)}"
            found[row + 1] = Copy(end - 1, source.rows_marker(row + 1, end - 1, like))
        row = end + 1
    return found


def _shape(line: str) -> str | None:
    """Return a line without its numbers and ids, or None where no word is left: that is data."""
    shape = _WORDS.sub(lambda match: "0" if any(c in "0123456789" for c in match[0]) else match[0], line)
    return shape if _WORD.search(shape) is not None else None


def united(source: Source, *groups: dict[int, Copy]) -> list[Unit]:
    """Return a text's lines with markers in place of the given ones; where two meet, the earlier group counts."""
    taken: set[int] = set()
    chosen: dict[int, Copy] = {}
    for group in groups:
        for first, copy in group.items():
            rows = range(first, copy.last + 1)
            if taken.isdisjoint(rows):
                taken.update(rows)
                chosen[first] = copy
    blocks: list[Unit] = []
    row = begin = 0
    while row < len(source.lines):
        copy = chosen.get(row)
        if copy is None:
            row += 1
            continue
        if begin < row:
            blocks.append(source.unit(begin, row - 1))
        blocks.append(Unit(copy.marker, *source.span(row, copy.last)))
        row = begin = copy.last + 1
    if begin < len(source.lines):
        blocks.append(source.unit(begin, len(source.lines) - 1))
    return blocks
