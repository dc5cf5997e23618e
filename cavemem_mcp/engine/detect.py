"""Decide what a text is. The order of `TYPES` matters; whatever is not surely something else is prose."""

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from cavemem_mcp.engine import (
    diff,
    logs,
    minified,
    pages,
    passes,
    prose,
    records,
    source_code,
    tables,
    terminal,
)
from cavemem_mcp.engine.units import Form, Source


class ContentType(NamedTuple):
    """A type of text: how it is told from others, and how it is made cheaper."""

    name: str
    recognises: Callable[[Source], bool]
    form: Callable[[Source, Sequence[str]], Form]


def form(source: Source, query_terms: Sequence[str]) -> tuple[str, Form]:
    """Return a text's type and its form of that type."""
    content_type = content_type_of(source)
    if content_type.name != TERMINAL:
        return content_type.name, content_type.form(source, query_terms)
    screen = terminal.screen(source)
    shown = content_type_of(screen.source)
    return content_type.name, terminal.form(screen, shown.form(screen.source, query_terms))


def content_type_of(source: Source) -> ContentType:
    """Return the first type that recognises a text."""
    return next(content_type for content_type in TYPES if content_type.recognises(source))


def _is_records(source: Source) -> bool:
    return source.json is not None and records.found_in(source.json) is not None


def _is_json(source: Source) -> bool:
    return source.json is not None


_DIFF: Final = re.compile(r"^(?:diff --git |--- [^\n]*\n\+\+\+ [^\n]*\n@@ -)", re.MULTILINE)


def _is_diff(source: Source) -> bool:
    match = _DIFF.search(source.text)
    return match is not None and "```" not in source.text[: match.start()]


_HTML: Final = re.compile(r"\s*(?:<\?xml[^>]{0,200}>\s*)?<(?:!doctype html|html)[\s>]", re.IGNORECASE)


def _is_html(source: Source) -> bool:
    return _HTML.match(source.text) is not None


_CODE: Final = re.compile(
    r"\s*(?:"
    r"from [\w.]+ import |import (?:[\w.]+(?: as \w+)?;?\s*$|[\w{*\"'(].* from |[\"'(]|static |[\w., ]+$)|@\w"
    r"|(?:async )?def \w+\(|(?:[a-z]+ ){0,4}class \w+[^.\n]{0,200}[:{(]\s*$"
    r"|(?:export |default |async |declare |abstract )*"
    r"(?:function\b.*\(|interface \w.*\{|enum \w.*\{|type \w.* ?=|(?:const|let|var) [\w{\[].*=)"
    r"|package [\w.]+;?\s*$|func [\w(].*\{|func \(|type \w+ (?:struct|interface|func)\b"
    r"|(?:pub )?(?:fn \w|struct \w.*[{;(]|trait \w|impl\b.*\{|mod \w+[ ;]|use [\w:]+(?:::|;))"
    r"|#include [<\"]|#define \w|typedef |using [\w.]+;|namespace \w|(?:public|private|protected|static|final) .*[;{(]"
    r")"
)
_CODE_END: Final = re.compile(r"[{}()\[\];:,=\\]\s*$|^\s+\S|^\s*(?:#|//|/?\*|@|\"\"\")")
_CODE_LINES_MIN: Final = 3
_CODE_SHARE: Final = 0.6


def _is_code(source: Source) -> bool:
    if "```" in source.text:
        return False
    lines = [line for line in source.lines if line.strip()]
    openers = 0
    for line in lines:
        openers += _CODE.match(line[:300]) is not None
        if openers == _CODE_LINES_MIN:
            break
    else:
        return False
    looking = sum(_CODE_END.search(line[-300:]) is not None or _CODE.match(line[:300]) is not None for line in lines)
    return (
        looking >= len(lines) * _CODE_SHARE
        and not _is_log(source)
        and not passes.recognises(source)
        and source_code.is_balanced(source.text)
    )


_LEVEL: Final = re.compile(
    r"\b(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL|CRITICAL)\b|\blevel=\w|\[(?:info|warn|error|debug|notice)\]"
)
_TIME: Final = re.compile(r"(?:^|[T \[:(])\d{2}:\d{2}:\d{2}(?!\d)")
_CONTINUATION: Final = re.compile(r"\s|Traceback |\w[\w.]*(?:Error|Exception)\b|Caused by")
_LOG_LINES_MIN: Final = 4


def _is_log(source: Source) -> bool:
    if "\x1b" in source.text:
        return False
    lines = [line for line in source.lines if line.strip()]
    marked = others = 0
    for line in lines:
        if _TIME.search(line[:48]) is not None or _LEVEL.search(line[:80]) is not None:
            marked += 1
        elif _CONTINUATION.match(line) is None:
            others += 1
    return marked >= _LOG_LINES_MIN and marked >= others


def _is_any(_: Source) -> bool:
    return True


TERMINAL: Final = "terminal"
TYPES: Final = (
    ContentType("json records", _is_records, records.form),
    ContentType("json", _is_json, minified.form),
    ContentType("diff", _is_diff, diff.form),
    ContentType("html", _is_html, pages.form),
    ContentType("code", _is_code, source_code.form),
    ContentType("csv", tables.recognises, tables.form),
    ContentType("test log", passes.recognises, passes.form),
    ContentType("log", _is_log, logs.form),
    ContentType(TERMINAL, terminal.is_drawn, prose.form),
    ContentType("prose", _is_any, prose.form),
)
