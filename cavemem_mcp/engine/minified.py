"""JSON that is no list of records: the white space between its parts goes; the focus shows parts with their paths."""

from collections.abc import Sequence
from typing import Final

from cavemem_mcp.engine.json_text import Outline, Part, is_lines, name, without_spaces
from cavemem_mcp.engine.units import MARK, UNIT_BYTES_MAX, Form, Source, Unit, pieces

_LEGEND: Final = f"{MARK}JSON, cut into path: value]"


def form(source: Source, _query_terms: Sequence[str]) -> Form:
    """Return the minified text; one value a line stays one value a line."""
    lines = source.lines if is_lines(source.text) else [source.text]
    return Form(
        text="\n".join(filter(None, map(without_spaces, lines))),
        method="minify",
        lossless=True,
        source=source,
        legend=_LEGEND,
        units=lambda: _units(source),
    )


def _units(source: Source) -> list[Unit]:
    """Show small parts together, each under its own path."""
    units: list[Unit] = []
    group: list[Part] = []
    size = 0
    for part in Outline(source.text).parts(UNIT_BYTES_MAX * 2 // 3):
        length = part.end - part.start
        if group and (size + length > UNIT_BYTES_MAX or part.parent != group[-1].parent):
            units += _shown(source, group)
            group, size = [], 0
        group.append(part)
        size += length
    return units + _shown(source, group) if group else units


def _shown(source: Source, group: Sequence[Part]) -> list[Unit]:
    """Return neighbouring parts of one object or list as a unit; a large single value is cut as text."""
    start, end = group[0].start, group[-1].end
    if end - start > UNIT_BYTES_MAX * 2 and len(group) == 1:
        piece = Source(source.text[start:end])
        return [
            unit._replace(start=unit.start + start, end=unit.end + start)
            for unit in pieces(piece, 0, len(piece.lines) - 1)
        ]
    parent = name(group[0].parent)
    shown = ",".join(without_spaces(source.text[part.start : part.end]) for part in group)
    return [Unit(f"{parent}: {shown}" if parent else shown, start, end)]
