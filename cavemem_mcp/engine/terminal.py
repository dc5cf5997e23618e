"""Terminal output: what is left on the screen, without escape sequences and overwritten lines."""

import re
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from cavemem_mcp import tokens
from cavemem_mcp.engine.units import MARK, Form, Source, plain

_ESCAPE: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[ -/]?[0-~]"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]"
)
_ESCAPED: Final = re.compile(r"\x1b[\[\]]")
_CONTROL: Final = re.compile(r"\x1b\[([0-9]{0,3})([ABEFGJK])|\r")
"""What moves the cursor up (A, F), down (B, E) or to a column (G), or erases the screen (J) or a line (K)."""
_WORD: Final = re.compile(r"[^\W\d_]+")


class Screen(NamedTuple):
    """What a terminal shows.

    Attributes:
        source: The lines left, numbered as in the original.
        legend: What was dropped, or nothing.
    """

    source: Source
    legend: str


def is_drawn(source: Source) -> bool:
    """Tell whether a text holds escape sequences, or redraws lines: the same words after a carriage return."""
    if _ESCAPED.search(source.text) is not None:
        return True
    if "\r" not in source.text:
        return False
    redrawn = others = 0
    for line in source.lines:
        words = [_WORD.findall(drawing) for drawing in line.split("\r") if drawing and not drawing.isspace()]
        for before, after in pairwise(words):
            if before and before == after:
                redrawn += 1
            else:
                others += 1
    return redrawn > others


class _Display:
    """The rows that a terminal shows and its cursor, of whose column only is known whether it is the first.

    A row has the number of the line that drew it, or of the one that left it blank.
    """

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.overwritten = 0
        self._rows: list[list[str]] = []
        self._at = 0
        self._at_start = True

    def rows(self) -> list[str]:
        """Return what is shown."""
        return ["".join(row) for row in self._rows]

    def draw(self, text: str, number: int) -> None:
        """Show text; at the start of a row it replaces what is there, blank text excepted."""
        shown = _ESCAPE.sub("", text)
        if not shown or (self._at_start and shown.isspace()):
            return
        self._reach(number)
        if self._at_start:
            self._erase(self._at)
            self.numbers[self._at] = number
        self._at_start = False
        self._rows[self._at].append(shown)

    def control(self, amount: str, action: str) -> None:
        """Move the cursor or erase."""
        if action in "AF":
            self._at = max(self._at - int(amount or 1), 0)
        elif action in "BE":
            self._at = min(self._at + int(amount or 1), len(self._rows))
        elif action == "K" and (self._at_start or amount in ("1", "2")):
            self._erase(self._at)
        elif action == "J" and self._at_start and amount in ("", "0"):
            for row in range(self._at, len(self._rows)):
                self._erase(row)
            del self._rows[self._at + 1 :], self.numbers[self._at + 1 :]
        self._at_start = self._at_start or action in "EFG\r"

    def end_line(self, number: int) -> None:
        """Move to the start of the next row."""
        self._reach(number)
        self._at += 1
        self._at_start = True

    def _reach(self, number: int) -> None:
        if self._at == len(self._rows):
            self._rows.append([])
            self.numbers.append(number)

    def _erase(self, row: int) -> None:
        if row < len(self._rows) and self._rows[row]:
            self.overwritten += 1
            self._rows[row] = []


def screen(source: Source) -> Screen:
    """Return what stays visible of terminal output."""
    display = _Display()
    for number, line in enumerate(source.lines, 1):
        done = 0
        for match in _CONTROL.finditer(line):
            display.draw(line[done : match.start()], number)
            display.control(match[1] or "", match[2] or "\r")
            done = match.end()
        display.draw(line[done:], number)
        display.end_line(number)
    text = "\n".join(display.rows())
    saved = tokens.count(source.text) - tokens.count(text)
    legend = f"{MARK}terminal: escapes and {display.overwritten} overwritten lines · {saved} tok]"
    return Screen(Source(text, list(accumulate(display.numbers, max))), legend)  # in order, also of rows that are not


def form(screen: Screen, shown: Form) -> Form:
    """Return the form of what is shown, with a line that says what is not."""
    if shown.needs_budget:
        shown = plain(screen.source)
    legend = "\n".join(filter(None, (screen.legend, shown.legend)))
    text = "\n".join((screen.legend, shown.text))
    return replace(shown, text=text, legend=legend, method=f"terminal, {shown.method}", lossless=False)
