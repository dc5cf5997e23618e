"""Terminal output: what is left on the screen, without escape sequences and overwritten lines."""

import re
from dataclasses import replace
from typing import Final, NamedTuple

from cavemem_mcp import tokens
from cavemem_mcp.engine.units import MARK, Form, Source, plain

_ESCAPE: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[ -/]?[0-~]"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]"
)
_UP_AND_ERASE: Final = re.compile(r"\x1b\[([0-9]{0,3})(?:A\r?\x1b\[[0-2]?[KJ]|F\x1b\[[0-2]?[KJ])")
_DRAWN: Final = re.compile(r"\x1b[\[\]]|[^\r\n]\r[^\r\n]")


class Screen(NamedTuple):
    """What a terminal shows.

    Attributes:
        source: The lines left, numbered as in the original.
        legend: What was dropped, or nothing.
    """

    source: Source
    legend: str


def is_drawn(text: str) -> bool:
    """Tell whether a text holds escape sequences or redraws lines."""
    return _DRAWN.search(text) is not None


def screen(source: Source) -> Screen:
    """Return what stays visible of terminal output."""
    shown: list[str] = []
    numbers: list[int] = []
    overwritten = 0
    for row, line in enumerate(source.lines):
        up = sum(int(match[1] or 1) for match in _UP_AND_ERASE.finditer(line))
        for _ in range(min(up, len(shown))):
            shown.pop()
            numbers.pop()
            overwritten += 1
        drawings = [drawing for part in line.split("\r") if (drawing := _ESCAPE.sub("", part)).strip()]
        overwritten += max(len(drawings) - 1, 0)
        shown.append(drawings[-1] if drawings else "")
        numbers.append(row + 1)
    text = "\n".join(shown)
    saved = tokens.count(source.text) - tokens.count(text)
    legend = f"{MARK}terminal: escapes and {overwritten} overwritten lines · {saved} tok]"
    return Screen(Source(text, numbers), legend)


def form(screen: Screen, shown: Form) -> Form:
    """Return the form of what is shown, with a line that says what is not."""
    if shown.needs_budget:
        shown = plain(screen.source)
    legend = "\n".join(filter(None, (screen.legend, shown.legend)))
    text = "\n".join((screen.legend, shown.text))
    return replace(shown, text=text, legend=legend, method=f"terminal, {shown.method}", lossless=False)
