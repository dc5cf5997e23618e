"""Source lines, units cut out of them, and the markers that stand for what is left out."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from cavemem_mcp import terms, tokens
from cavemem_mcp.engine import json_text

UNIT_BYTES_MAX: Final = 440
"""Size of a unit in bytes of UTF-8: about 110 tokens in most scripts."""
MARK: Final = "[… "
"""How each line of ours begins; nothing else tells a result from an original."""
_OWN_LINE: Final = re.compile(r"^\[… ", re.MULTILINE)


class Unit(NamedTuple):
    """A piece that is kept or left out as one.

    Attributes:
        text: What is shown, without a line end after it.
        start: Where the characters that it stands for begin in the source.
        end: Where they end.
        level: Depth of the heading that it is: 1 is the highest, 0 is no heading.
    """

    text: str
    start: int
    end: int
    level: int = 0


class Source:
    """A text and its lines, which end at line feeds and keep their ends."""

    def __init__(self, text: str, numbers: Sequence[int] | None = None) -> None:
        """Take a text; `numbers` are its lines' numbers in the original, where lines are missing."""
        self.text = text
        self._numbers = numbers

    @cached_property
    def lines(self) -> list[str]:
        """Return the lines without their line feeds; a carriage return before one stays."""
        lines = self.text.split("\n")
        return lines if lines[-1] else lines[:-1]

    @cached_property
    def starts(self) -> list[int]:
        """Return where each line begins, and where one after the last would."""
        starts = [0]
        for line in self.lines:
            starts.append(starts[-1] + len(line) + 1)
        return starts

    @cached_property
    def json(self) -> json_text.Value | None:
        """Return what the text is as JSON; None if it is not."""
        return json_text.parsed(self.text)

    def row(self, offset: int) -> int:
        """Return the index of the line that holds a character."""
        return min(bisect_right(self.starts, offset), len(self.lines)) - 1

    def number(self, row: int) -> int:
        """Return a line's number in the original."""
        return row + 1 if self._numbers is None else self._numbers[row]

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Return where the lines with the indices `first` to `last` begin and end, without the last line feed."""
        return self.starts[first], self.starts[last] + len(self.lines[last])

    def unit(self, first: int, last: int, level: int = 0) -> Unit:
        """Return the lines with the indices `first` to `last` as they are."""
        start, end = self.span(first, last)
        return Unit(self.text[start:end], start, end, level)

    def rows_marker(self, first: int, last: int, what: str = "") -> str:
        """Return the marker for whole lines, given by their indices."""
        return self.marker(*self.span(first, last), what=what)

    def cost(self, rows: Iterable[int]) -> int:
        """Return what lines, given by their indices, cost together."""
        return tokens.count("\n".join(self.lines[row] for row in rows) + "\n")

    def marker(self, start: int, end: int, what: str = "") -> str:
        """Return the marker for a span of characters that is left out."""
        return self.markers([(start, end)], what=what)[0]

    def markers(self, spans: Sequence[tuple[int, int]], what: str = "") -> list[str]:
        """Return the markers for spans of characters that are left out."""
        counts = [tokens.count(self.text[start:end]) for start, end in spans]
        marks: list[str] = []
        for (start, end), count in zip(spans, counts, strict=True):
            first, last = self.number(self.row(start)), self.number(self.row(max(start, end - 1)))
            place = f"L{first}" if first == last else f"L{first}-{last}"
            marks.append(f"{MARK}{place}{what and f' · {what}'} · {count} tok]")
        return marks


@dataclass(frozen=True, kw_only=True)
class Form:
    """A text of a known type in its cheaper form.

    Attributes:
        text: The whole form.
        method: How it was made.
        lossless: Whether the text's values can be read back from it.
        legend: The lines of ours that explain the units; they stay when units are left out.
        units: Cuts the form into units for the focus, in source order.
        source: What the units' spans refer to.
        needs_budget: Whether it is only for a text that exceeds its budget as a whole.
    """

    text: str
    method: str
    source: Source
    units: Callable[[], list[Unit]]
    lossless: bool = False
    legend: str = ""
    needs_budget: bool = False


def looks_compressed(text: str) -> bool:
    """Tell whether a text has a line that begins as ours do."""
    return _OWN_LINE.search(text) is not None


def plain(source: Source) -> Form:
    """Return a text as it is, cut by its paragraphs."""
    return Form(text=source.text, method="none", source=source, units=lambda: paragraphs(source), lossless=True)


def paragraphs(source: Source) -> list[Unit]:
    """Cut a text at blank lines and by size."""
    units: list[Unit] = []
    first = 0
    size = 0
    for row, line in enumerate(source.lines):
        blank = not line or line.isspace()
        if first < row and (blank or size + len(line) > UNIT_BYTES_MAX):
            units += pieces(source, first, row - 1)
            first, size = row, 0
        if blank:
            first = row + 1
        else:
            size += utf8_size(line)
    if first < len(source.lines):
        units += pieces(source, first, len(source.lines) - 1)
    return units


def pieces(source: Source, first: int, last: int, level: int = 0) -> list[Unit]:
    """Cut lines, given by their indices, into units of at most `UNIT_BYTES_MAX`; only longer lines are cut inside."""
    units: list[Unit] = []
    begin, size = first, 0
    for row in range(first, last + 1):
        length = utf8_size(source.lines[row])
        if row > begin and size + length > UNIT_BYTES_MAX:
            units.append(source.unit(begin, row - 1, level))
            begin, size = row, 0
        if length > UNIT_BYTES_MAX * 2:
            units += [Unit(source.text[start:end], start, end) for start, end in _cuts(source, row)]
            begin, size = row + 1, 0
        else:
            size += length
    if begin <= last:
        units.append(source.unit(begin, last, level))
    return units


def refined(source: Source, blocks: Sequence[Unit]) -> list[Unit]:
    """Cut those blocks that are lines as they are in the source by size."""
    units: list[Unit] = []
    for block in blocks:
        if utf8_size(block.text) > UNIT_BYTES_MAX and source.text.startswith(block.text, block.start):
            units += pieces(source, source.row(block.start), source.row(block.end - 1), block.level)
        else:
            units.append(block)
    return units


def _cuts(source: Source, row: int) -> list[tuple[int, int]]:
    """Cut one long line after sentences, else at spaces, else anywhere."""
    line, offset = source.lines[row], source.starts[row]
    cuts: list[tuple[int, int]] = []
    start = 0
    while utf8_size(line[start : start + UNIT_BYTES_MAX + 1]) > UNIT_BYTES_MAX:
        window = line[start : start + UNIT_BYTES_MAX]
        window = window.encode()[:UNIT_BYTES_MAX].decode(errors="ignore")
        length = _last_break(window)
        cuts.append((offset + start, offset + start + length))
        start += length
    if start < len(line):
        cuts.append((offset + start, offset + len(line)))
    return cuts


def _last_break(window: str) -> int:
    """Return the length of the longest start of a window that ends well."""
    half = len(window) // 2
    for ends in ((". ", "! ", "? ", "。", "！", "？"), ("},", "; ", ", ", "、", "，"), (" ",)):
        at = max(window.rfind(end, half) + len(end) if end in window[half:] else 0 for end in ends)
        if at:
            return at
    return len(window)


def utf8_size(text: str) -> int:
    """Return the size of a text in bytes of UTF-8."""
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def asked_rows(lines: Sequence[str], query_terms: Sequence[str]) -> set[int]:
    """Return the indices of the lines that hold a term of the query, of a frequent one only the first."""
    if not query_terms:
        return set()
    holders: dict[str, list[int]] = {term: [] for term in query_terms}
    for row, line in enumerate(lines):
        for term in terms.document_terms(line).frequencies:
            if term in holders:
                holders[term].append(row)
    few = max(3, len(lines) // 50)
    return {row for rows in holders.values() for row in (rows if len(rows) <= few else rows[:1])}


def hides(shown: str, whole: str, query_terms: Sequence[str]) -> bool:
    """Tell whether a text holds terms of the query, but what is shown of it holds none."""
    if not query_terms:
        return False
    seen = terms.document_terms(shown).frequencies
    if any(term in seen for term in query_terms):
        return False
    held = terms.document_terms(whole).frequencies
    return any(term in held for term in query_terms)
