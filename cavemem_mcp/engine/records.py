"""JSON that holds a list of objects: column names once, then one row a record.

```
[… JSON: 3 rows of "items"; ~ is missing]
{"total":3,"items":[]}
kind: user
id name address.city
1 Ann Berlin
2 "Bob B." ~
```

The second line is what is around the list, the third the columns that never change; each stands only where there is
one. Keys of inner objects are joined by dots. A cell is a bare string if it cannot be anything else, else JSON.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from cavemem_mcp import tokens
from cavemem_mcp.engine import minified
from cavemem_mcp.engine.json_text import Number, Outline, Value, dump, is_lines, name, string
from cavemem_mcp.engine.units import MARK, UNIT_BYTES_MAX, Form, Source, Unit, utf8_size

RECORDS_MIN: Final = 3
LEGEND_SHARE: Final = 0.5
"""Where more than this part of the text is around the records, it is no table."""
SPARSE_MAX: Final = 4
"""Where fewer than one in so many cells hold a value, it is no table either."""
ROW_BYTES_MAX: Final = UNIT_BYTES_MAX * 2
"""Where rows are larger on average, the focus cuts inside of records."""
_SEPARATORS: Final = (" ", "\t", "|")
_MISSING: Final = "~"
_SAMPLE: Final = 60
_NOT_BARE: Final = re.compile(
    r"""[\x00-\x1f"\x7f-\xa0\u2028\u2029\ud800-\udfff]|^[\s\[{~…]|\s$|^$"""
    r"|^(?:true|false|null|NaN|-?Infinity|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)$"
)

Path = tuple[str, ...]


class Table(NamedTuple):
    """A list of objects inside a value.

    Attributes:
        path: The keys that lead to the list.
        rows: The objects.
    """

    path: Path
    rows: list[dict[str, Value]]


def found_in(value: Value | None) -> Table | None:
    """Return the longest list of at least three objects that is the value or is reached through objects alone."""
    best: Table | None = None
    pending: list[tuple[Path, Value]] = [((), value)]
    while pending:
        path, inner = pending.pop()
        if isinstance(inner, dict):
            pending += [((*path, key), below) for key, below in inner.items() if isinstance(below, dict | list)]
        elif isinstance(inner, list) and len(inner) >= RECORDS_MIN:
            rows = [row for row in inner if isinstance(row, dict) and row]
            if len(rows) == len(inner) and (best is None or len(rows) > len(best.rows)):
                best = Table(path, rows)
    return best


def form(source: Source, query_terms: Sequence[str]) -> Form:
    """Return the table, or the minified text where that is cheaper."""
    value = source.json
    table = found_in(value)
    if table is None:
        raise ValueError("no list of objects")
    small = minified.form(source, query_terms)
    flat = [_flattened(row) for row in table.rows]
    columns = list(dict.fromkeys(path for row in flat for path in row))
    if len(columns) * len(flat) > SPARSE_MAX * sum(map(len, flat)):
        return small
    constant: list[Path] = []
    varying: list[Path] = []
    for path in columns:
        (constant if _is_constant(path, flat) else varying).append(path)
    if not varying:
        varying, constant = constant[:1], constant[1:]
    separator = _cheapest_separator(varying, flat)
    lines = is_lines(source.text)
    legend = "\n".join(
        (
            *_around(value, table, is_lines=lines),
            *_constants(constant, flat[0], separator),
            separator.join(map(name, varying)),
        )
    )
    if utf8_size(legend) > len(source.text) * LEGEND_SHARE:
        return small
    rows = [separator.join(_cell(row.get(path, _ABSENT), separator) for path in varying) for row in flat]
    text = "\n".join((legend, *rows))
    method = "records"
    if tokens.count(small.text) <= tokens.count(text):
        text, method = small.text, small.method
    if sum(map(utf8_size, rows)) > len(rows) * ROW_BYTES_MAX:
        return replace(small, text=text, method=method)
    return Form(
        text=text,
        method=method,
        lossless=True,
        source=source,
        legend=legend,
        units=lambda: _units(source, table, rows, is_lines=lines),
    )


class _Absent:
    """Stands for a value that a record does not have."""


_ABSENT: Final = _Absent()


def _flattened(row: dict[str, Value]) -> dict[Path, Value]:
    """Return a record's values by path; empty objects are values."""
    flat: dict[Path, Value] = {}
    pending: list[tuple[Path, Value]] = [((key,), value) for key, value in reversed(row.items())]
    while pending:
        path, value = pending.pop()
        if isinstance(value, dict) and value:
            pending += [((*path, key), inner) for key, inner in reversed(value.items())]
        else:
            flat[path] = value
    return flat


def _is_constant(path: Path, flat: Sequence[dict[Path, Value]]) -> bool:
    if path not in flat[0]:
        return False
    first = dump(flat[0][path])
    return all(path in row and dump(row[path]) == first for row in flat)


def _around(value: Value, table: Table, *, is_lines: bool) -> list[str]:
    """Return the line that says what the rows are, and what is around them."""
    place = f' of "{name(table.path)}"' if table.path else ""
    kind = "JSON lines" if is_lines else "JSON"
    said = f"{MARK}{kind}: {len(table.rows)} rows{place}; {_MISSING} is missing]"
    return [said, dump(_emptied(value, table.path))] if table.path else [said]


def _constants(paths: Sequence[Path], row: dict[Path, Value], separator: str) -> list[str]:
    """Return the line that states the columns that never change, if there are any."""
    stated = [f"{name(path)}={_cell(row[path], separator)}" for path in paths]
    return [separator.join(("always", *stated))] if stated else []


def _emptied(value: Value, path: Path) -> Value:
    """Return what is around the list at a path."""
    if not path or not isinstance(value, dict):
        return []
    return {key: _emptied(inner, path[1:]) if key == path[0] else inner for key, inner in value.items()}


def _cell(value: Value | _Absent, separator: str) -> str:
    if isinstance(value, _Absent):
        return _MISSING
    if isinstance(value, Number) or not isinstance(value, str):
        return dump(value)
    if separator in value or _NOT_BARE.search(value) is not None:
        return string(value)
    return value


def _cheapest_separator(columns: Sequence[Path], flat: Sequence[dict[Path, Value]]) -> str:
    """Return the separator that makes the first rows cheapest."""
    samples = [
        "\n".join(sep.join(_cell(row.get(path, _ABSENT), sep) for path in columns) for row in flat[:_SAMPLE])
        for sep in _SEPARATORS
    ]
    counts = [tokens.count(sample) for sample in samples]
    return _SEPARATORS[counts.index(min(counts))]


def _units(source: Source, table: Table, rows: Sequence[str], *, is_lines: bool) -> list[Unit]:
    """Return neighbouring rows together, with the places of their records."""
    outline = Outline(source.text)
    places = outline.roots() if is_lines else outline.items(table.path)
    units: list[Unit] = []
    group = 0
    size = 0
    for at, row in enumerate(rows):
        length = utf8_size(row)
        if at > group and size + length > UNIT_BYTES_MAX:
            units.append(Unit("\n".join(rows[group:at]), places[group][0], places[at - 1][1]))
            group, size = at, 0
        size += length
    units.append(Unit("\n".join(rows[group:]), places[group][0], places[-1][1]))
    return units
