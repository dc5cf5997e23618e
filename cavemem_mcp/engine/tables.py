"""CSV and TSV: columns that never change are stated once, and a long cell that repeats the one above is a ditto mark.

```
[… CSV: ^ repeats the cell above; in all rows: 3:region=eu-west-1]
id,customer,total
17,Northwind Traders,12.50
18,^,7.00
```

A constant column is stated with its place, here the third.
"""

import csv
from collections.abc import Sequence
from typing import Final, NamedTuple

from cavemem_mcp.engine.units import MARK, UNIT_BYTES_MAX, Form, Source, Unit, utf8_size

DELIMITERS: Final = ",\t;|"
ROWS_MIN: Final = 3
FIT_SHARE: Final = 0.95
DITTO: Final = "^"
DITTO_LENGTH_MIN: Final = 6
"""A shorter cell costs hardly more than the mark and is easier to read."""
HEADER_NAME_MAX: Final = 40


class _Table(NamedTuple):
    """Rows of cells, and the index of the source line where each begins, and of one after the last."""

    delimiter: str
    rows: list[list[str]]
    begins: list[int]


def recognises(source: Source) -> bool:
    """Tell whether a text has a header of unique names, and rows with as many cells."""
    return _table(source) is not None


def form(source: Source, _query_terms: Sequence[str]) -> Form:
    """Return the table without what is there again and again."""
    table = _table(source)
    if table is None:
        raise ValueError("no table")
    header, *rows = table.rows
    whole = [row for row in rows if len(row) == len(header)]
    constant: list[int] = []
    varying: list[int] = []
    for at, name in enumerate(header):
        (constant if _is_constant([row[at] for row in whole], name) else varying).append(at)
    if not varying:
        varying, constant = constant[:1], constant[1:]
    if any(len(row) == len(varying) != len(header) for row in rows):  # it would be read as a row without the constants
        constant, varying = [], list(range(len(header)))
    can_repeat = not any(DITTO in (cell, cell.strip()) for row in rows for cell in row)
    said = [f"{DITTO} repeats the cell above"] if can_repeat else []
    if constant:
        said.append("in all rows: " + _line([f"{at + 1}:{header[at]}={whole[0][at]}" for at in constant], ","))
    marker = f"{MARK}CSV{': ' if said else ''}{'; '.join(said)}]"
    legend = f"{marker}\n{_line([header[at] for at in varying], table.delimiter)}"
    units = _units(source, table, varying, can_repeat=can_repeat)
    return Form(
        text="\n".join((legend, *(unit.text for unit in units))),
        method="csv",
        lossless=True,
        source=source,
        legend=legend,
        units=lambda: units,
    )


def _is_constant(cells: Sequence[str], name: str) -> bool:
    """Tell whether a column is one value that can be stated in the legend."""
    return len(set(cells)) == 1 and "=" not in name and "\n" not in name + cells[0]


def _table(source: Source) -> _Table | None:
    """Read a table with the delimiter that its header has."""
    first = next((line for line in source.lines if line.strip()), "")
    for delimiter in DELIMITERS:
        if delimiter in first:
            table = _read(source, delimiter)
            if table is not None:
                return table
    return None


def _read(source: Source, delimiter: str) -> _Table | None:
    """Read a table, or return None where its rows do not fit its header."""
    reader = csv.reader((f"{line}\n" for line in source.lines), delimiter=delimiter, strict=True)
    rows: list[list[str]] = []
    begins: list[int] = []
    begin = misfits = 0
    try:
        for row in reader:
            if row:
                rows.append(row)
                begins.append(begin)
                misfits += len(row) != len(rows[0])
                if len(rows) == 1 and not _is_header(row):
                    return None
                if misfits > len(source.lines) * (1 - FIT_SHARE):
                    return None
            begin = reader.line_num
    except csv.Error:
        return None
    if len(rows) <= ROWS_MIN or misfits > (len(rows) - 1) * (1 - FIT_SHARE):
        return None
    return _Table(delimiter, rows, [*begins, begin])


def _is_header(row: Sequence[str]) -> bool:
    """Tell whether cells are names: unique, short, not numbers."""
    names = [cell.strip() for cell in row]
    return (
        len(names) > 1
        and len(set(names)) == len(names)
        and all(0 < len(name) <= HEADER_NAME_MAX and any(c.isalpha() or c == "#" for c in name) for name in names)
    )


def _units(source: Source, table: _Table, varying: Sequence[int], *, can_repeat: bool) -> list[Unit]:
    """Write neighbouring rows together; ditto marks refer to rows of the same unit only."""
    width = len(table.rows[0])
    units: list[Unit] = []
    group: list[str] = []
    size = begin = 0
    above: list[str] | None = None
    for at, row in enumerate(table.rows[1:], 1):
        cells = row if len(row) != width else [row[place] for place in varying]
        if not group or size > UNIT_BYTES_MAX:
            if group:
                units.append(_unit(source, table, group, begin, at))
            group, size, begin, above = [], 0, at, None
        if can_repeat and above is not None and len(row) == width:
            marked = [
                DITTO if len(cell) >= DITTO_LENGTH_MIN and cell == upper else cell
                for cell, upper in zip(cells, above, strict=True)
            ]
        else:
            marked = cells
        group.append(_line(marked, table.delimiter))
        size += utf8_size(group[-1])
        above = cells if len(row) == width else None
    units.append(_unit(source, table, group, begin, len(table.rows)))
    return units


def _unit(source: Source, table: _Table, group: Sequence[str], begin: int, end: int) -> Unit:
    start = source.starts[table.begins[begin]]
    return Unit("\n".join(group), start, min(source.starts[table.begins[end]], len(source.text)))


def _line(cells: Sequence[str], delimiter: str) -> str:
    """Write one row, with quotes where they are needed."""
    if len(cells) == 1 and not cells[0]:
        return '""'
    return delimiter.join(_quoted(cell, delimiter) for cell in cells)


def _quoted(cell: str, delimiter: str) -> str:
    if delimiter in cell or '"' in cell or "\n" in cell or "\r" in cell:
        return '"' + cell.replace('"', '""') + '"'
    return cell
