"""Prose and Markdown: unchanged but for blank lines, rule lines and what is there twice."""

import re
from collections.abc import Sequence
from typing import Final

from cavemem_mcp.engine import repeats
from cavemem_mcp.engine.units import MARK, UNIT_BYTES_MAX, Form, Source, Unit, pieces, utf8_size

_RULES: Final = "-=_*~#+"
_HEADING: Final = re.compile(r"(#{1,6}) \S")
_FENCE: Final = ("```", "~~~")
_RULE_LENGTH_MIN: Final = 3


def form(source: Source, _query_terms: Sequence[str]) -> Form:
    """Return the text without spare lines, and with long repetition as markers."""
    lines = source.lines
    spare = _spare_rows(lines)
    copies = repeats.found_in(source)
    shown: list[str] = []
    dropped: list[int] = []
    row = 0
    while row < len(lines):
        copy = copies.get(row)
        if copy is not None:
            shown.append(copy.marker)
            row = copy.last + 1
            continue
        if row in spare:
            dropped.append(row)
        else:
            shown.append(lines[row])
        row += 1
    if dropped:
        shown.insert(0, f"{MARK}{len(dropped)} blank or rule lines · {source.cost(dropped)} tok]")
    return Form(
        text="\n".join(shown),
        method="lines",
        source=source,
        lossless=not dropped,
        units=lambda: _units(source, copies),
    )


def _fenced_rows(lines: Sequence[str]) -> list[bool]:
    """Tell of each line whether it is in fenced code, fences included."""
    fenced: list[bool] = []
    inside = False
    for line in lines:
        is_fence = line.lstrip().startswith(_FENCE)
        fenced.append(inside or is_fence)
        inside = inside != is_fence
    return fenced


def _spare_rows(lines: Sequence[str]) -> set[int]:
    """Return the rows of blank lines after another blank line, and of rule lines, outside of fenced code."""
    spare: set[int] = set()
    blank = False
    for row, (line, is_fenced) in enumerate(zip(lines, _fenced_rows(lines), strict=True)):
        if is_fenced:
            blank = False
        elif not line or line.isspace():
            if blank:
                spare.add(row)
            blank = True
        elif _is_rule(line):
            spare.add(row)
        else:
            blank = False
    return spare


def _is_rule(line: str) -> bool:
    """Tell whether a line is one repeated character that draws a rule."""
    if line.lstrip()[:1] not in _RULES:
        return False
    drawn = "".join(line.split())
    return len(drawn) >= _RULE_LENGTH_MIN and drawn == drawn[0] * len(drawn)


def _units(source: Source, copies: dict[int, repeats.Copy]) -> list[Unit]:
    """Cut at headings, blank lines and by size; rule lines stay."""
    units: list[Unit] = []
    lines = source.lines
    fenced = _fenced_rows(lines)
    begin, row = 0, 0

    def close(end: int) -> None:
        if begin < end:
            units.extend(pieces(source, begin, end - 1))

    while row < len(lines):
        line = lines[row]
        copy = copies.get(row)
        heading = None if fenced[row] else _HEADING.match(line)
        if copy is not None or heading is not None or (not fenced[row] and (not line or line.isspace())):
            close(row)
            if copy is not None:
                units.append(Unit(copy.marker, *source.span(row, copy.last)))
                row = copy.last
            elif heading is not None:
                units.append(source.unit(row, row, level=len(heading[1])))
            begin = row + 1
        row += 1
    close(len(lines))
    return _joined(source, units)


def _joined(source: Source, units: Sequence[Unit]) -> list[Unit]:
    """Join short neighbouring paragraphs."""
    joined: list[Unit] = []
    for unit in units:
        last = joined[-1] if joined else None
        if (
            last is not None
            and not last.level
            and not unit.level
            and utf8_size(last.text) + utf8_size(unit.text) < UNIT_BYTES_MAX
            and source.text[last.start : unit.end].count("\n\n") <= 1
            and source.text.startswith(last.text, last.start)
            and source.text.startswith(unit.text, unit.start)
        ):
            joined[-1] = Unit(source.text[last.start : unit.end], last.start, unit.end)
        else:
            joined.append(unit)
    return joined
