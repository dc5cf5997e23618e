"""Read lossless forms back: what the engine promises is there is found again from the form alone."""

import csv
import json
import re

from cavemem_mcp.engine.json_text import Number, Value, read

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LITERALS: dict[str, Value] = {"null": None, "true": True, "false": False}
_DECODER = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=Number)


def records_of(form: str) -> tuple[Value, bool]:
    """Return the value that a records form stands for, and whether it was one value a line."""
    head, *lines = form.split("\n")
    match = re.fullmatch(r'\[… (JSON|JSON lines): ([0-9]+) rows(?: of "(.*)")?; ~ is missing\]', head)
    assert match is not None
    path = _path(match[3]) if match[3] else []
    around: Value = read(lines.pop(0)) if path else []
    count = int(match[2])
    rows_at = len(lines) - count
    assert rows_at in (1, 2)
    columns_line = lines[rows_at - 1]
    separator = lines[0][6] if rows_at == 2 else _separator(columns_line)
    columns = [_path(cell) for cell in _cells(columns_line, separator, names=True)]
    constant: list[tuple[list[str], Value]] = []
    if rows_at == 2:
        for cell in _cells(lines[0][7:], separator, named=True):
            name, value = _named(cell)
            constant.append((name, value))
    rows: list[Value] = []
    for line in lines[rows_at:]:
        row: dict[str, Value] = {}
        cells = _cells(line, separator)
        assert len(cells) == len(columns)
        for path_, cell in zip(columns, cells, strict=True):
            if cell != "~":
                _put(row, path_, _value(cell))
        for path_, value in constant:
            _put(row, path_, value)
        rows.append(row)
    return _placed(around, path, rows), match[1] == "JSON lines"


def _separator(columns: str) -> str:
    """Return what follows the first name; a single name has no separator."""
    end = min(_name_end(columns, 0, (separator,)) for separator in "\t| ")
    return columns[end : end + 1] or "\0"


def _cells(line: str, separator: str, *, named: bool = False, names: bool = False) -> list[str]:
    """Cut a line into values, names, or names with values."""
    cells: list[str] = []
    at = 0
    while True:
        end = _name_end(line, at, (separator, "=")) if named or names else at
        if not names:
            end = _value_end(line, end + named, separator)
        cells.append(line[at:end])
        if end >= len(line):
            return cells
        at = end + 1


def _name_end(line: str, at: int, ends: tuple[str, ...]) -> int:
    while at < len(line) and line[at] not in ends:
        at = _DECODER.raw_decode(line, at)[1] if line[at] == '"' else at + 1
    return at


def _value_end(line: str, at: int, separator: str) -> int:
    if line[at : at + 1] in ('"', "[", "{"):
        return _DECODER.raw_decode(line, at)[1]
    end = line.find(separator, at)
    return len(line) if end < 0 else end


def _path(text: str) -> list[str]:
    path: list[str] = []
    at = 0
    while at <= len(text):
        if text[at : at + 1] == '"':
            key, end = _DECODER.raw_decode(text, at)
        else:
            end = text.find(".", at)
            end = len(text) if end < 0 else end
            key = text[at:end]
        path.append(key)
        at = end + 1
    return path


def _named(cell: str) -> tuple[list[str], Value]:
    at = 0
    while cell[at] != "=":
        at = _DECODER.raw_decode(cell, at)[1] if cell[at] == '"' else at + 1
    return _path(cell[:at]), _value(cell[at + 1 :])


def _value(cell: str) -> Value:
    if cell[:1] in ('"', "[", "{"):
        return read(cell)
    if cell in _LITERALS:
        return _LITERALS[cell]
    if _NUMBER.fullmatch(cell) or cell in ("NaN", "Infinity", "-Infinity"):
        return Number(cell)
    return cell


def _put(row: dict[str, Value], path: list[str], value: Value) -> None:
    for key in path[:-1]:
        inner = row.setdefault(key, {})
        assert isinstance(inner, dict)
        row = inner
    row[path[-1]] = value


def _placed(around: Value, path: list[str], rows: list[Value]) -> Value:
    if not path:
        return rows
    assert isinstance(around, dict)
    return {key: _placed(inner, path[1:], rows) if key == path[0] else inner for key, inner in around.items()}


def log_of(form: str) -> str:
    """Return the log that a form of templates stands for."""
    head, *lines = form.split("\n")
    slot = head.removeprefix("[… log: lines with ")[0]
    blank = lines.index("")
    templates, rows = lines[:blank], lines[blank + 1 :]
    out: list[str] = []
    for row in rows:
        if row.startswith("|"):
            out.append(row[1:])
            continue
        body, count = _counted(row)
        number, *values = body.split(" ")
        if number.isascii() and number.isdigit():
            parts = templates[int(number) - 1].split(slot)
            line = "".join(part + value for part, value in zip(parts, [*values, ""], strict=True))
        else:
            line = body
        out += [line] * count
    return "\n".join(out)


def _counted(row: str) -> tuple[str, int]:
    match = re.fullmatch(r"(.*) ×([0-9]+)", row, re.DOTALL)
    return (match[1], int(match[2])) if match else (row, 1)


def table_of(form: str, delimiter: str) -> list[list[str]]:
    """Return the rows that a CSV form stands for."""
    head, rest = _head(form)
    match = re.fullmatch(
        r"\[… CSV(?:: (?P<repeats>\^ repeats the cell above))?(?:[:;] in all rows: (?P<same>.*))?\]", head, re.DOTALL
    )
    assert match is not None
    header, *rows = csv.reader((line + "\n" for line in rest.split("\n")), delimiter=delimiter)
    whole: list[list[str]] = [header]
    above: list[str] = []
    for row in rows:
        if match["repeats"] and len(row) == len(header):
            row = [upper if cell == "^" else cell for cell, upper in zip(row, above or row, strict=True)]
            above = row
        else:
            above = []
        whole.append(row)
    if not match["same"]:
        return whole
    fields = next(csv.reader((line + "\n" for line in match["same"].split("\n")), delimiter=","))
    return [_with_constants(row, fields, len(header), is_header=at == 0) for at, row in enumerate(whole)]


def _head(form: str) -> tuple[str, str]:
    at = form.index("]\n")
    return form[: at + 1], form[at + 2 :]


def _with_constants(row: list[str], fields: list[str], width: int, *, is_header: bool) -> list[str]:
    if len(row) != width:
        return row
    row = list(row)
    for field in fields:
        place, _, rest = field.partition(":")
        name, _, value = rest.partition("=")
        row.insert(int(place) - 1, name if is_header else value)
    return row
