"""Source code: the skeleton (signatures, decorators, first docstring lines, constants), and bodies asked for.

A grammar for each language, or one that comes with the Python that runs this, would give different results on
different machines; strings, comments, brackets and indentation are enough to find the bodies.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from cavemem_mcp.engine import scores
from cavemem_mcp.engine.units import Form, Source, Unit, refined

BODY_LINES_MIN: Final = 3
BODY_BYTES_MIN: Final = 120
"""A smaller body costs little more than its marker."""
HEAD_CHARACTERS_MAX: Final = 400
"""How far above a brace what it opens is looked for."""
ASKED_MAX: Final = 4
ASKED_SCORE_MIN: Final = 0.6
"""Bodies that score at least this part of the best one are asked for."""
_PYTHON_TOKENS: Final = re.compile(
    r"#[^\n]*"
    r"|[rRbBuUfF]{0,2}(?:\"\"\"(?:[^\\]|\\[\s\S])*?(?:\"\"\"|\Z)|'''(?:[^\\]|\\[\s\S])*?(?:'''|\Z)"
    r"|\"(?:[^\"\\\n]|\\[\s\S])*\"?|'(?:[^'\\\n]|\\[\s\S])*'?)"
)
_BRACE_TOKENS: Final = re.compile(
    r"//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)|\"(?:[^\"\\\n]|\\[\s\S])*\"?|'(?:[^'\\\n]|\\.){0,12}'|`(?:[^`\\]|\\[\s\S])*`?"
)
_PYTHON: Final = re.compile(
    r"^[ \t]*(?:def \w+\(|async def \w+\(|class \w+[^\n]{0,200}:[ \t\r]*$|from [\w.]+ import |import [\w.]+[ \t\r]*$)",
    re.M,
)
_BRACES: Final = re.compile(r"[{;]\r?$", re.M)
_PYTHON_HEAD: Final = re.compile(r"(\s*)(?:async def|def|class)\b")
_CONTAINER: Final = re.compile(
    r"\b(?:class|interface|struct|enum|union|trait|impl|namespace|mod|module|object|extern|record|protocol|extension|type)\b"
)
_OPENING: Final = re.compile(r"[\[({]")
_BRACE: Final = re.compile(r"[{}]")
_NOT_BRACKET: Final = re.compile(r"[^\[\](){}\n]+")
_INSIDE: Final = "\n" + " " * 24 + "s"
"""Line of a string or comment of several lines: it counts as indented."""
_DOCSTRINGS: Final = ('"""', "'''", 'r""')
_PAIRS: Final = {")": "(", "]": "[", "}": "{"}


class _Body(NamedTuple):
    """Rows of a definition: where it begins, and the first and last row of its body."""

    head: int
    first: int
    last: int


def is_balanced(text: str) -> bool:
    """Tell whether the brackets outside of strings and comments match."""
    opened: list[str] = []
    for bracket in _NOT_BRACKET.sub("", _masked(text)):
        if bracket in "([{":
            opened.append(bracket)
        elif bracket != "\n" and (not opened or opened.pop() != _PAIRS[bracket]):
            return False
    return not opened


def form(source: Source, query_terms: Sequence[str]) -> Form:
    """Return the skeleton and the bodies asked for; the skeleton alone is only for a text that exceeds its budget."""
    masked = _masked(source.text).split("\n")
    bodies = _python_bodies(source, masked) if _is_python(source.text) else _brace_bodies(masked)
    bodies = [
        body
        for body in bodies
        if body.last - body.first + 1 >= BODY_LINES_MIN
        and source.starts[body.last + 1] - source.starts[body.first] >= BODY_BYTES_MIN
    ]
    asked = _asked(source, bodies, query_terms)
    blocks: list[Unit] = []
    done = 0
    for at, body in enumerate(bodies):
        if at in asked:
            continue
        if done < body.first:
            blocks.append(source.unit(done, body.first - 1))
        blocks.append(Unit(source.rows_marker(body.first, body.last), *source.span(body.first, body.last)))
        done = body.last + 1
    if done < len(source.lines):
        blocks.append(source.unit(done, len(source.lines) - 1))
    return Form(
        text="\n".join(block.text for block in blocks),
        method="skeleton",
        source=source,
        needs_budget=not asked,
        units=lambda: _units(source, bodies),
    )


def _is_python(text: str) -> bool:
    return len(_PYTHON.findall(text)) > len(_BRACES.findall(text))


def _masked(text: str) -> str:
    """Return code with its strings as letters and its comments as spaces; lines stay lines."""
    tokens = _PYTHON_TOKENS if _is_python(text) else _BRACE_TOKENS
    return tokens.sub(_blank, text)


def _blank(match: re.Match[str]) -> str:
    found = match[0]
    if "\n" in found:
        return ("" if found.startswith("/*") else "s") + _INSIDE * found.count("\n")
    return " " * len(found) if found[0] in "#/" else "s" * len(found)


def _python_bodies(source: Source, masked: Sequence[str]) -> list[_Body]:
    """Find function bodies by indentation; those of a class are found inside it."""
    bodies: list[_Body] = []
    row = next((row for row, line in enumerate(source.lines) if line.strip() and not line.startswith("#")), 0)
    bodies += _docstring_rest(source.lines, masked, row, row)
    while row < len(source.lines):
        head = _PYTHON_HEAD.match(masked[row])
        if head is None:
            row += 1
            continue
        first = _after_signature(masked, row)
        if "class" in head[0]:
            bodies += _docstring_rest(source.lines, masked, row, first)
            row = first
            continue
        last = _block_end(masked, first, len(head[1].expandtabs(8)))
        first = _after_docstring(source.lines, masked, first, last)
        if first <= last:
            bodies.append(_Body(row, first, last))
        row = max(last, row) + 1
    return bodies


def _docstring_rest(lines: Sequence[str], masked: Sequence[str], head: int, first: int) -> list[_Body]:
    """Return a docstring without its first line as a body, if there is one at a row."""
    if first >= len(lines) or lines[first].lstrip()[:3] not in _DOCSTRINGS:
        return []
    last = first
    while last + 1 < len(masked) and masked[last + 1].startswith(_INSIDE[1:]):
        last += 1
    return [_Body(head, first + 1, last)] if last > first else []


def _after_signature(masked: Sequence[str], row: int) -> int:
    """Return the row after a signature, which ends where its brackets do."""
    depth = 0
    while row < len(masked):
        line = masked[row]
        depth += sum(line.count(bracket) for bracket in "([{") - sum(line.count(bracket) for bracket in ")]}")
        row += 1
        if depth <= 0:
            break
    return row


def _block_end(masked: Sequence[str], first: int, indent: int) -> int:
    """Return the last row that is indented deeper; blank rows after it do not count."""
    last = first - 1
    depth = 0
    for row in range(first, len(masked)):
        line = masked[row]
        if not line.strip():
            continue
        wide = line.expandtabs(8)
        if depth <= 0 and len(wide) - len(wide.lstrip()) <= indent:
            break
        depth += sum(line.count(bracket) for bracket in "([{") - sum(line.count(bracket) for bracket in ")]}")
        last = row
    return last


def _after_docstring(lines: Sequence[str], masked: Sequence[str], first: int, last: int) -> int:
    """Return the row after the first line of a docstring, where there is one."""
    if first <= last and lines[first].lstrip()[:3] in _DOCSTRINGS:
        return first + 1
    return first


def _brace_bodies(masked: Sequence[str]) -> list[_Body]:
    """Find the outermost braces that hold statements; classes, modules and the like are looked into."""
    bodies: list[_Body] = []
    opened: list[tuple[int, int, bool]] = []  # row of the head, row of the brace, whether it is looked into
    head = 0
    inside = 0  # how many open braces are not looked into
    for row, line in enumerate(masked):
        if not inside and _OPENING.search(line) is None and (not line.strip() or line.rstrip().endswith((";", "}"))):
            head = row + 1
        begun = 0  # where in this line its last statement begins
        for match in _BRACE.finditer(line):
            at = match.start()
            if match[0] == "{":
                looked_into = not inside and _is_container(masked[head:row], line[begun:at])
                opened.append((head, row, looked_into))
                inside += not looked_into
                if looked_into:
                    head, begun = row + 1, at + 1
            elif opened:
                begin, brace, looked_into = opened.pop()
                inside -= not looked_into
                if not looked_into and not inside and row - brace > 1:
                    bodies.append(_Body(begin, brace + 1, row - 1))
                if not inside:
                    head, begun = row + 1, at + 1
    return bodies


def _is_container(above: Sequence[str], before: str) -> bool:
    """Tell whether the lines above a brace and what is before it in its line open a class, a module or the like."""
    return _CONTAINER.search(f"{' '.join(above)[-HEAD_CHARACTERS_MAX:]} {before}") is not None


def _asked(source: Source, bodies: Sequence[_Body], query_terms: Sequence[str]) -> set[int]:
    """Return which bodies, with their heads, a query asks for."""
    if not query_terms or not bodies:
        return set()
    held = scores.held_by(["\n".join(source.lines[body.head : body.last + 1]) for body in bodies], query_terms)
    scored = scores.scores(held, query_terms, scores.average_length(held))
    best = max(scored)
    ranked = sorted(
        (at for at, score in enumerate(scored) if score and score >= best * ASKED_SCORE_MIN),
        key=lambda at: (-scored[at], at),
    )
    return set(ranked[:ASKED_MAX])


def _units(source: Source, bodies: Sequence[_Body]) -> list[Unit]:
    """Cut into heads, which count as headings, their bodies, and what is between."""
    units: list[Unit] = []
    done = 0
    for body in bodies:
        head = max(body.head, done)
        if done < head:
            units += refined(source, [source.unit(done, head - 1)])
        if head < body.first:
            block = source.unit(head, body.first - 1, level=1)
            units += refined(source, [block])
        units += refined(source, [source.unit(body.first, body.last)])
        done = body.last + 1
    if done < len(source.lines):
        units += refined(source, [source.unit(done, len(source.lines) - 1)])
    return units
