"""JSON that is no list of records: the white space between its parts goes; the focus shows parts with their paths."""

from collections.abc import Sequence
from typing import Final

from cavemem_mcp.engine.json_text import Outline, is_lines, name, without_spaces
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
    """Show each part under its own path; a large single value is cut as text."""
    units: list[Unit] = []
    for parent, start, end in Outline(source.text).parts(UNIT_BYTES_MAX):
        if end - start > UNIT_BYTES_MAX * 2:
            piece = Source(source.text[start:end])
            units += [
                unit._replace(start=unit.start + start, end=unit.end + start)
                for unit in pieces(piece, 0, len(piece.lines) - 1)
            ]
        else:
            shown = without_spaces(source.text[start:end])
            units.append(Unit(f"{name(parent)}: {shown}" if parent else shown, start, end))
    return units
