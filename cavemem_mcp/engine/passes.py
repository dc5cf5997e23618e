"""Test and build logs: runs of lines that only say that all is well become counted markers; the rest stays."""

import re
from collections.abc import Sequence
from typing import Final

from cavemem_mcp.engine import repeats
from cavemem_mcp.engine.units import Form, Source, asked_rows, refined

PASSES_MIN: Final = 5
PASSES_SHARE: Final = 0.3
RUN_MIN: Final = 3
LINE_LENGTH_MAX: Final = 400
_STAMP: Final = r"(?:\S{0,12}[0-9]{2}:[0-9]{2}:[0-9]{2}\S{0,12} )?(?:\[[^\]\s]{1,40}\] ?){0,2}"
_SURE: Final = re.compile(
    _STAMP + r"(?:\S.* PASSED(?: +\[ *[0-9]+%\])?|PASSED \S+|\S+\.py[ :]+\.+ *\[ *[0-9]+%\]|\.+ *\[ *[0-9]+%\]"
    r"|\S+ \([\w.]+\)(?: \.\.\.)? ?\.\.\. ok|test \S.* \.\.\. ok|\s*--- PASS: .*|=== (?:RUN|PAUSE|CONT|NAME) .*"
    r"|\[ RUN +\] .*|\[ +OK \] .*|ok {2,}\t?\S+\t.*|ok\s+\S+\s+(?:[0-9.]+m?s|\(cached\)).*|PASS"
    r"|\s*[0-9]+/[0-9]+ Test +#[0-9]+: .* Passed +.*)\s*$"
)
_ROUTINE: Final = re.compile(
    _STAMP + r"\s*(?:(?:Requirement already satisfied|Downloading|Collecting|Using cached|Obtaining dependency"
    r"|Preparing metadata|Getting requirements|Installing build dependencies|Compiling|Downloaded|Fetching|Get:[0-9]+"
    r"|Hit:[0-9]+|Unpacking|Selecting previously|Preparing to unpack|Setting up|Processing triggers)[ :].*"
    r"|[━─█]{5,}.*|[0-9]{1,3}%\|.*)\s*$"
)
_WEAK: Final = re.compile(_STAMP + r"\s*(?:[✓✔√] .*|PASS \S+.*|ok [0-9]+\b.*)\s*$")
_SUMMARY: Final = re.compile(
    r"^[ \t]*(?:[0-9]+ passing|Tests: +[0-9]|Test Suites: |# pass |1\.\.[0-9]+|Test Files +[0-9]|Tests +[0-9]+ passed)",
    re.MULTILINE,
)
_FAULT: Final = re.compile(
    r"\b(?i:fail|error|warn|deprecat|panic|xfail|fatal|assert)|[a-z](?:Error|Exception|Warning)s?\b"
)
_FAULT_DETAIL: Final = re.compile(
    r"[E>] {3}|\s*(?:[0-9]+\) |not ok\b|[✕✗✖✘×] |[-+] |(?:left|right|expected|actual|received|got|want)\b)",
    re.IGNORECASE,
)


def recognises(source: Source) -> bool:
    """Tell whether enough lines only say that all is well."""
    if "\x1b" in source.text:
        return False
    passed = sum(_passed(source))
    return passed >= PASSES_MIN and passed >= sum(map(bool, map(str.strip, source.lines))) * PASSES_SHARE


def form(source: Source, query_terms: Sequence[str]) -> Form:
    """Return the log with each run of passes, and of lines that differ in numbers alone, as a marker."""
    lines = source.lines
    passed = _passed(source)
    asked = asked_rows(lines, query_terms)
    whole = asked | {row for row, line in enumerate(lines) if _is_fault(line)}
    runs: dict[int, repeats.Copy] = {}
    row = 0
    while row < len(lines):
        end = row
        while end < len(lines) and passed[end] and end not in asked:
            end += 1
        if end - row >= RUN_MIN:
            runs[row] = repeats.Copy(end - 1, source.rows_marker(row, end - 1, f"{end - row} passed"))
        row = end + 1
    blocks = repeats.united(source, runs, repeats.found_in(source), repeats.runs_in(source, whole))
    return Form(
        text="\n".join(block.text for block in blocks),
        method="passes",
        source=source,
        units=lambda: refined(source, blocks),
    )


def _is_fault(line: str) -> bool:
    """Tell whether a line says what went wrong."""
    return _FAULT.search(line) is not None or _FAULT_DETAIL.match(line) is not None


def _passed(source: Source) -> list[bool]:
    """Tell of each line whether it only says that all is well."""
    has_summary = _SUMMARY.search(source.text) is not None
    return [len(line) <= LINE_LENGTH_MAX and _is_pass(line, has_summary=has_summary) for line in source.lines]


def _is_pass(line: str, *, has_summary: bool) -> bool:
    if _SURE.match(line) is not None or (has_summary and _WEAK.match(line) is not None):
        return True
    return _ROUTINE.match(line) is not None and _FAULT.search(line) is None
