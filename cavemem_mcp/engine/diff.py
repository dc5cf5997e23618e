"""Diffs: one header line a file, one line of context around each change, lock and generated files as counts."""

import re
from collections.abc import Sequence
from typing import Final

from cavemem_mcp.engine.units import MARK, UNIT_BYTES_MAX, Form, Source, Unit, asked_rows, refined, utf8_size

CONTEXT_LINES: Final = 1
_HUNK: Final = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_HEADER: Final = re.compile(
    r"index [0-9a-f]+\.\.|--- |\+\+\+ |(?:old|new) mode |similarity index |rename (?:from|to) |copy (?:from|to) "
    r"|new file mode |deleted file mode "
)
_TELLING: Final = re.compile(r"similarity index |rename |copy |new file |deleted file |(?:old|new) mode ")
_GENERATED: Final = re.compile(
    r"(?:^|/)(?:package-lock\.json|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.yaml|bun\.lock|Cargo\.lock|poetry\.lock|uv\.lock"
    r"|Pipfile\.lock|composer\.lock|Gemfile\.lock|flake\.lock|mix\.lock|go\.sum|packages\.lock\.json)\s*$"
    r"|\.min\.(?:js|css)\s*$|\.(?:js|css)\.map\s*$|_pb2(?:_grpc)?\.py\s*$|\.pb\.go\s*$|\.snap\s*$"
)


class _File:
    """One file's rows: its header, its hunks (each a header row and the rows of its body), and rows of neither."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.last = first
        self.header: list[int] = [first]
        self.hunks: list[tuple[int, int]] = []


def form(source: Source, query_terms: Sequence[str]) -> Form:
    """Return the diff with less around its changes."""
    files = _files(source.lines)
    asked = asked_rows(source.lines, query_terms)
    shown: list[Unit] = []
    dropped: list[int] = []
    done = 0
    for file in files:
        if done < file.first:
            shown.append(source.unit(done, file.first - 1))
        done = file.last + 1
        if _GENERATED.search(_name(source.lines, file)) is not None:
            shown += _counted(source, file, query_terms)
        else:
            shown += _shortened(source, file, asked, dropped)
    if done < len(source.lines):
        shown.append(source.unit(done, len(source.lines) - 1))
    legend = ""
    if dropped:
        legend = f"{MARK}{len(dropped)} lines of context and file headers · {source.cost(dropped)} tok]"
    return Form(
        text="\n".join(([legend] if legend else []) + [unit.text for unit in shown]),
        method="diff",
        source=source,
        legend=legend,
        units=lambda: refined(source, shown),
    )


def _files(lines: Sequence[str]) -> list[_File]:
    """Find the files of a diff; lines that belong to none are in no file."""
    files: list[_File] = []
    row = 0
    while row < len(lines):
        line = lines[row]
        file = files[-1] if files and files[-1].last == row - 1 else None
        if file is not None and not file.hunks and _HEADER.match(line) is not None:
            file.header.append(row)
            file.last = row
        elif file is not None and (match := _HUNK.match(line)) is not None:
            file.last = _hunk_end(lines, row, int(match[1] or 1), int(match[2] or 1))
            file.hunks.append((row, file.last))
            row = file.last
        elif line.startswith("diff --git ") or (line.startswith("--- ") and _starts_file(lines, row)):
            files.append(_File(row))
        row += 1
    return files


def _starts_file(lines: Sequence[str], row: int) -> bool:
    return row + 2 < len(lines) and lines[row + 1].startswith("+++ ") and lines[row + 2].startswith("@@ -")


def _hunk_end(lines: Sequence[str], row: int, old: int, new: int) -> int:
    """Return the last row of a hunk whose header counts `old` and `new` lines."""
    while row + 1 < len(lines) and (old > 0 or new > 0 or lines[row + 1].startswith("\\")):
        sign = lines[row + 1][:1]
        if sign == "+":
            new -= 1
        elif sign == "-":
            old -= 1
        elif sign in (" ", "", "\r"):
            old, new = old - 1, new - 1
        elif sign != "\\":
            break
        row += 1
    return row


def _name(lines: Sequence[str], file: _File) -> str:
    """Return the line that names the file after the change."""
    named = [
        lines[row]
        for row in file.header
        if lines[row].startswith("+++ ") and not lines[row].startswith("+++ /dev/null")
    ]
    return (named or [lines[file.first]])[0].split("\t")[0]


def _counted(source: Source, file: _File, query_terms: Sequence[str]) -> list[Unit]:
    """Return a generated file as its name and the numbers of its changed lines, with those that the query asks for."""
    header = source.unit(file.first, file.first, level=1)
    rows = list(range(file.first + 1, file.last + 1))
    if not rows:
        return [header]
    lines = [source.lines[row] for row in rows]
    asked = sorted(rows[at] for at in asked_rows(lines, query_terms) if lines[at][:1] in ("+", "-"))
    units = [header]
    begin = file.first + 1
    for row in [*asked, file.last + 1]:
        if begin < row:
            changed = source.lines[begin:row]
            added = sum(line.startswith("+") and not line.startswith("+++ ") for line in changed)
            removed = sum(line.startswith("-") and not line.startswith("--- ") for line in changed)
            what = f"generated +{added} -{removed}"
            units.append(Unit(source.rows_marker(begin, row - 1, what), *source.span(begin, row - 1)))
        if row <= file.last:
            units.append(source.unit(row, row))
        begin = row + 1
    return units


def _shortened(source: Source, file: _File, asked: set[int], dropped: list[int]) -> list[Unit]:
    """Return a file's changes with little but what is asked for around them; rows left out are added to `dropped`."""
    lines = source.lines
    head = [file.first, *(row for row in file.header[1:] if _TELLING.match(lines[row]) is not None)]
    if not lines[file.first].startswith("diff --git "):
        head = file.header
    dropped += [row for row in file.header if row not in head]
    start, end = source.span(file.first, file.header[-1])
    units = [Unit("\n".join(lines[row] for row in head), start, end, level=1)]
    done = file.header[-1] + 1
    for first, last in file.hunks:
        if done < first:
            units.append(source.unit(done, first - 1))
        done = last + 1
        kept = _near_changes(lines, first, last)
        rows = [row for row in range(first, last + 1) if row in kept or row in asked]
        dropped += [row for row in range(first, last + 1) if row not in kept and row not in asked]
        units += _grouped(source, rows, last)
    if done <= file.last:
        units.append(source.unit(done, file.last))
    return units


def _near_changes(lines: Sequence[str], first: int, last: int) -> set[int]:
    """Return the rows of a hunk that are changes or next to one, and its header."""
    kept = {first}
    for row in range(first + 1, last + 1):
        if lines[row][:1] in ("+", "-", "\\"):
            kept.update(range(max(row - CONTEXT_LINES, first), min(row + CONTEXT_LINES, last) + 1))
    return kept


def _grouped(source: Source, rows: Sequence[int], last: int) -> list[Unit]:
    """Cut the kept rows of a hunk into units that together stand for the whole hunk."""
    units: list[Unit] = []
    group: list[int] = []
    size = 0
    for row in rows:
        length = utf8_size(source.lines[row])
        if group and size + length > UNIT_BYTES_MAX:
            units.append(_unit(source, group, row - 1))
            group, size = [], 0
        group.append(row)
        size += length
    return [*units, _unit(source, group, last)]


def _unit(source: Source, rows: Sequence[int], last: int) -> Unit:
    start, end = source.span(rows[0], last)
    return Unit("\n".join(source.lines[row] for row in rows), start, end)
