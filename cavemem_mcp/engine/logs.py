"""System logs: lines that differ in numbers, ids and one word become a template, stated once, and rows of values.

```
[… log: lines with * are templates 1, 2, …; a row is a template's number and its values]
2026-03-01T* INFO worker job * done in *ms
1 10:00:01 17 230
1 10:00:02 18 90 ×3
Traceback (most recent call last):
```

×3 says that the line is there three times in a row. A line that no template fits stands as it is, after a `|` where it
could be misread as a row.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from cavemem_mcp.engine.units import MARK, UNIT_BYTES_MAX, Form, Source, Unit, pieces, utf8_size

TEMPLATE_LINES_MIN: Final = 3
WORDS_MERGED_MIN: Final = 3
WORDS_MERGED_MAX: Final = 2
WORDS_COMPARED_MAX: Final = 60
"""In lines with more words than this none becomes a value: each is compared with all lines without it."""
LINE_CHARACTERS_MAX: Final = 2000
"""Longer lines are data, not log messages."""
_SLOTS: Final = "*§¤"
_PIECES: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?=[T ])|T(?=[0-9]{2}:)"
    r"|[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F-]{22}(?![0-9A-Za-z])|[0-9A-Za-z_]+"
)
_UNIT: Final = re.compile(r"[0-9]+(Z|[mun]?s|m|h|[kKMG]i?B|B)")
_JOINTS: Final = (":", ".", ",")
_ROW_LIKE: Final = re.compile(r"[|]|[0-9]+(?: |$)|.* ×[0-9]+$", re.DOTALL)


class _Line(NamedTuple):
    """A line cut into the text around its values, and the values."""

    shape: tuple[str, ...]
    values: tuple[str, ...]


def form(source: Source, _query_terms: Sequence[str]) -> Form:
    """Return the templates and rows; the focus shows lines as they are."""
    lines = source.lines
    slot = next((slot for slot in _SLOTS if slot not in source.text), None)
    if slot is None:
        return Form(text=source.text, method="none", source=source, units=lambda: _entries(source), lossless=True)
    cut = [_cut(line) for line in lines]
    for _ in range(WORDS_MERGED_MAX):
        cut = _with_words_merged(cut)
    members: dict[tuple[str, ...], list[int]] = {}
    for row, line in enumerate(cut):
        members.setdefault(line.shape, []).append(row)
    templates: list[str] = []
    encoded = [f"|{line}" if _ROW_LIKE.match(line) is not None else line for line in lines]
    for shape, rows in members.items():
        if len(rows) < TEMPLATE_LINES_MIN or len("".join(shape)) < len(shape) + 4:
            continue
        constant = _constants([cut[row].values for row in rows])
        template = _template(shape, constant, slot)
        templates.append(template)
        varying = [at for at, value in enumerate(constant) if value is None]
        for row in rows:
            encoded[row] = " ".join([str(len(templates)), *(cut[row].values[at] for at in varying)])
    legend = f"{MARK}log: lines with {slot} are templates 1, 2, …; a row is a template's number and its values]"
    end = "\n" if source.text.endswith("\n") else ""
    return Form(
        text="\n".join([legend, *templates, "", *_counted(encoded)]) + end,
        method="templates",
        source=source,
        units=lambda: _entries(source),
        lossless=True,
    )


def _cut(line: str) -> _Line:
    """Cut a line at its values: words with a digit in them, and such words joined by a colon, point or comma."""
    if len(line) > LINE_CHARACTERS_MAX or "×" in line:
        return _Line((line,), ())
    shape: list[str] = []
    values: list[str] = []
    done = 0
    ended = -2
    for match in _PIECES.finditer(line):
        word = match[0]
        if not any(character in "0123456789" for character in word):
            continue
        start, end = match.span()
        if start == ended + 1 and line[ended] in _JOINTS:
            values[-1] += line[ended:end]
        else:
            shape.append(line[done:start])
            values.append(word)
        unit = _UNIT.fullmatch(word)
        if unit is not None:
            values[-1] = values[-1][: -len(unit[1])]
            end -= len(unit[1])
        done = ended = end
    return _Line((*shape, line[done:]), tuple(values))


def _with_words_merged(cut: Sequence[_Line]) -> list[_Line]:
    """Make a word a value where at least three shapes differ in it alone."""
    shapes = dict.fromkeys(line.shape for line in cut if line.values)
    short = [shape for shape in shapes if sum(text.count(" ") + 1 for text in shape) <= WORDS_COMPARED_MAX]
    wild: dict[tuple[tuple[str, ...], int, int], list[tuple[str, ...]]] = {}
    places: dict[tuple[str, ...], list[tuple[tuple[str, ...], int, int]]] = {}
    for shape in short:
        for at, text in enumerate(shape):
            words = text.split(" ")
            for place, word in enumerate(words):
                if word and (word.isalpha() or len(word) > 3):
                    blank = (*shape[:at], " ".join([*words[:place], "\0", *words[place + 1 :]]), *shape[at + 1 :])
                    key = (blank, at, place)
                    wild.setdefault(key, []).append(shape)
                    places.setdefault(shape, []).append(key)
    chosen = {
        shape: max(keys, key=lambda key: len(wild[key]))
        for shape, keys in places.items()
        if max(len(wild[key]) for key in keys) >= WORDS_MERGED_MIN
    }
    return [_merged(line, *chosen[line.shape][1:]) if line.shape in chosen else line for line in cut]


def _merged(line: _Line, at: int, place: int) -> _Line:
    """Make one word of a line's shape a value."""
    words = line.shape[at].split(" ")
    before, after = " ".join([*words[:place], ""]), " ".join(["", *words[place + 1 :]])
    if place == 0:
        before = ""
    if place == len(words) - 1:
        after = ""
    return _Line(
        (*line.shape[:at], before, after, *line.shape[at + 1 :]),
        (*line.values[:at], words[place], *line.values[at:]),
    )


def _constants(values: Sequence[tuple[str, ...]]) -> list[str | None]:
    """Return for each place the value that all lines have there, or None."""
    return [column[0] if len(set(column)) == 1 else None for column in zip(*values, strict=True)]


def _template(shape: tuple[str, ...], constant: Sequence[str | None], slot: str) -> str:
    """Write a template with a slot for each value that varies."""
    parts = [shape[0]]
    for value, text in zip(constant, shape[1:], strict=True):
        parts += [slot if value is None else value, text]
    return "".join(parts)


def _counted(lines: Sequence[str]) -> list[str]:
    """Collapse runs of equal lines, but not where the count could be misread as the line's own end."""
    counted: list[str] = []
    row = 0
    while row < len(lines):
        following = row + 1
        while following < len(lines) and lines[following] == lines[row] and not lines[row].startswith("|"):
            following += 1
        counted.append(lines[row] if following == row + 1 else f"{lines[row]} ×{following - row}")
        row = following
    return counted


def _entries(source: Source) -> list[Unit]:
    """Keep log entries with their continuation lines together; neighbouring short ones form one unit."""
    units: list[Unit] = []
    begin, size, entry = 0, 0, 0
    for row, line in enumerate(source.lines):
        if row == 0 or (line and not line[0].isspace()):
            entry = row
        size += utf8_size(line)
        if size > UNIT_BYTES_MAX and entry > begin:
            units += pieces(source, begin, entry - 1)
            begin = entry
            size = sum(utf8_size(source.lines[at]) for at in range(entry, row + 1))
    if begin < len(source.lines):
        units += pieces(source, begin, len(source.lines) - 1)
    return units
