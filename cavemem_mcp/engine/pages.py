"""HTML pages: the text with its headings, lists, tables and links; scripts, styles, navigation and forms go."""

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Final

from cavemem_mcp import tokens
from cavemem_mcp.engine.units import MARK, UNIT_BYTES_MAX, Form, Source, Unit, hides, pieces, plain, utf8_size

_NEVER_SHOWN: Final = frozenset({"script", "style", "svg", "noscript", "template"})
_AROUND: Final = {"nav": "navigation", "footer": "footers", "form": "forms"}
"""What is around the text of a page, by its tag."""
_BLOCKS: Final = frozenset(
    {
        *("address", "article", "aside", "blockquote", "body", "br", "caption", "dd", "details", "div", "dl", "dt"),
        *("fieldset", "figcaption", "figure", "form", "h1", "h2", "h3", "h4", "h5", "h6", "head", "header", "hgroup"),
        *("html", "li", "main", "ol", "p", "pre", "section", "summary", "table", "tbody", "tfoot", "thead", "title"),
        *("tr", "ul"),
    }
)
_HEADINGS: Final = {f"h{level}": level for level in range(1, 7)} | {"title": 1}
_SPACE: Final = re.compile(r"\s+")
_LINK_MAX: Final = 300


def form(source: Source, query_terms: Sequence[str]) -> Form:
    """Return the text of a page, with what is around it only where the query finds nothing else."""
    text = source.text
    end = text.rfind(">") + 1
    if text.rfind("<!--") > text.rfind("-->"):  # a comment without an end hides the rest
        return plain(source)
    around = set(_AROUND)
    try:
        reader = _read(source, end, around)
        if reader.in_forms > sum(len(unit.text) for unit in reader.units):  # some pages are one form around everything
            around = {"nav", "footer"}
            reader = _read(source, end, around)
        if hides(reader.text, text, query_terms):
            around = set[str]()
            reader = _read(source, end, around)
    except AssertionError:  # what the parser raises for a malformed declaration
        return plain(source)
    if reader.dropping:  # so does an element
        return plain(source)
    saved = tokens.count(text) - tokens.count(reader.text)
    left_out = ", ".join(("scripts", "styles", *(what for tag, what in _AROUND.items() if tag in around)))
    legend = f"{MARK}HTML as text: markup, {left_out} · {saved} tok]"
    return Form(
        text=f"{legend}\n{reader.text}",
        method="html",
        source=source,
        legend=legend,
        units=lambda: _grouped(reader.units),
    )


def _read(source: Source, end: int, around: set[str]) -> "_Reader":
    """Read a page without what is `around` its text.

    Every construct before `end` has an end itself, which keeps the parser's work linear.
    """
    reader = _Reader(source, _NEVER_SHOWN | around)
    reader.feed(source.text[:end])
    reader.finish(source.text[end:])
    return reader


class _Reader(HTMLParser):
    """Collects lines of text with the places that they come from."""

    def __init__(self, source: Source, dropped: frozenset[str]) -> None:
        super().__init__(convert_charrefs=True)
        self.in_forms = 0  # characters of text
        self._dropped = dropped
        self.units: list[Unit] = []
        self.dropping: list[str] = []
        self._source = source
        self._line: list[str] = []
        self._start = 0
        self._level = 0
        self._preformatted = 0
        self._has_text = False  # in the line
        self._link: tuple[str, int] | None = None  # the open one: where it leads, and where in the line it begins

    @property
    def text(self) -> str:
        """Return what was collected."""
        return "\n".join(unit.text for unit in self.units)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open an element."""
        if tag in self._dropped:
            self.dropping.append(tag)
        if self.dropping:
            return
        if tag in _BLOCKS:
            self._end_line()
        if tag in _HEADINGS:
            self._level = _HEADINGS[tag]
            self._show("#" * self._level + " ")
        elif tag == "li":
            self._show("- ")
        elif tag in ("td", "th") and self._has_text:
            self._show(" | ")
        elif tag == "pre":
            self._preformatted += 1
        elif tag in ("a", "img", "meta"):
            self._open_with_attributes(tag, dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        """Close an element."""
        if self.dropping:
            if tag == self.dropping[-1]:
                self.dropping.pop()
            return
        if tag == "a":
            self._end_link()
        if tag in _BLOCKS:
            self._end_line()
        if tag == "pre":
            self._preformatted = max(self._preformatted - 1, 0)

    def handle_data(self, data: str) -> None:
        """Take text."""
        if self.dropping:
            self.in_forms += len(data.strip()) if self.dropping[-1] == "form" else 0
            return
        if self._preformatted:
            first, *rest = data.split("\n")
            self._show(first)
            for line in rest:
                self._end_line()
                self._show(line)
        else:
            self._show(_SPACE.sub(" ", data))

    def _open_with_attributes(self, tag: str, attributes: dict[str, str | None]) -> None:
        """Open an element whose attributes hold text or a link."""
        if tag == "a":
            self._end_link()
            self._link = (attributes.get("href") or "", len(self._line))
        elif tag == "img" and attributes.get("alt"):
            self._show(f"[{attributes['alt']}]")
        elif tag == "meta" and attributes.get("name") == "description" and attributes.get("content"):
            self._show(attributes["content"] or "")
            self._end_line()

    def finish(self, rest: str) -> None:
        """Take the text after the last construct."""
        self.close()
        if rest.strip():
            self._show(_SPACE.sub(" ", rest))
        self._end_line()

    def _show(self, text: str) -> None:
        if not self._line:
            self._start = self._place()
        if text:
            self._line.append(text)
            self._has_text = self._has_text or not text.isspace()

    def _place(self) -> int:
        row, column = self.getpos()
        return min(self._source.starts[min(row - 1, len(self._source.lines))] + column, len(self._source.text))

    def _end_link(self) -> None:
        """Write where a link leads, unless it is a place in the same page or its text says it."""
        if self._link is None:
            return
        (href, at), self._link = self._link, None
        label = "".join(self._line[at:]).strip()
        if label and href.startswith(("http://", "https://", "mailto:")) and len(href) <= _LINK_MAX and href != label:
            self._line[at:] = [f"[{label}]({href})"]

    def _end_line(self) -> None:
        line = "".join(self._line)
        shown = line.rstrip() if self._preformatted else line.strip()
        if shown.strip("#-| "):
            self.units.append(Unit(shown, self._start, max(self._place(), self._start), self._level))
        self._line, self._has_text, self._link, self._level = [], False, None, 0


def _grouped(lines: Sequence[Unit]) -> list[Unit]:
    """Join short neighbouring lines between headings, and cut long ones after sentences."""
    units: list[Unit] = []
    for line in (piece for whole in lines for piece in _cut(whole)):
        last = units[-1] if units else None
        if (
            last is not None
            and not line.level
            and not last.level
            and utf8_size(last.text) + utf8_size(line.text) <= UNIT_BYTES_MAX
        ):
            units[-1] = Unit(f"{last.text}\n{line.text}", last.start, line.end)
        else:
            units.append(line)
    return units


def _cut(line: Unit) -> list[Unit]:
    """Cut a long line; its parts share its place in the source by their lengths."""
    if utf8_size(line.text) <= UNIT_BYTES_MAX * 2:
        return [line]
    shown = Source(line.text)
    share = (line.end - line.start) / len(line.text)
    return [
        Unit(piece.text, line.start + int(piece.start * share), line.start + int(piece.end * share), line.level)
        for piece in pieces(shown, 0, len(shown.lines) - 1)
    ]
