"""Choose the units that a query needs, within a token budget."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from cavemem_mcp import tokens
from cavemem_mcp.engine import scores
from cavemem_mcp.engine.units import UNIT_BYTES_MAX, Form, Unit, hides, plain, utf8_size

OPENING_SHARE: Final = 0.08
OUTLINE_SHARE: Final = 0.12
OPENING_BUDGET_MIN: Final = 1000
"""Below this budget every token goes to what the query needs."""
NEIGHBOURED: Final = 4
"""How many of the best units come with the units beside them."""
MARKER_TOKENS: Final = 16
"""Allowance for a marker while units are chosen; the result is counted exactly."""
UNITS_MAX: Final = 4000
"""More units than this are joined first: a text of 256 KiB has about 600 of full size."""
HEADINGS_SCORED: Final = 2
"""How many headings above a unit count as part of it when it is scored."""


def select(form: Form, query_terms: Sequence[str], token_budget: int) -> str:
    """Return the best of a form that costs at most `token_budget` tokens, with markers for the rest."""
    units = form.units()
    if len(units) > UNITS_MAX:
        units = _coarser(units)
    choice = _Choice(form, units, token_budget)
    scored = _scores(units, choice.headings, query_terms)
    ranked = sorted((at for at, (score, _) in enumerate(scored) if score > 0), key=lambda at: (-scored[at][0], at))
    best = next((at for at in ranked if scored[at][1]), None)
    if best is None and form.method != "none" and hides(form.legend, form.source.text, query_terms):
        return select(plain(form.source), query_terms, token_budget)
    if best is not None:
        if not choice.add(best):
            unit = units[best]
            if not form.source.text.startswith(unit.text, unit.start):  # a part of a row says nothing
                return select(plain(form.source), query_terms, token_budget)
            return _around(form, unit, scored[best][1], token_budget)
        _fill(choice, best, ranked, scored)
    else:
        choice.fill_from_start()
    return choice.fitting_text()


def _coarser(units: Sequence[Unit]) -> list[Unit]:
    """Join neighbouring units up to the usual size."""
    joined: list[Unit] = []
    group: list[Unit] = []
    size = 0
    for unit in units:
        length = utf8_size(unit.text) + 1
        if group and size + length > UNIT_BYTES_MAX:
            joined.append(Unit("\n".join(one.text for one in group), group[0].start, group[-1].end))
            group, size = [], 0
        group.append(unit)
        size += length
    return [*joined, Unit("\n".join(one.text for one in group), group[0].start, group[-1].end)]


def _fill(choice: "_Choice", best: int, ranked: Sequence[int], scored: Sequence[tuple[float, tuple[str, ...]]]) -> None:
    """Spend the budget that the best unit leaves."""
    choice.add_heading(best)
    seen = set(scored[best][1])
    for at in ranked:  # the best unit for each word of the query that is not shown yet
        if not seen.issuperset(scored[at][1]) and choice.add(at):
            seen.update(scored[at][1])
    if choice.token_budget >= OPENING_BUDGET_MIN:
        choice.add_while(range(len(choice.units)), OPENING_SHARE)
        outline = [at for at, unit in enumerate(choice.units) if unit.level]
        choice.add_while(sorted(outline, key=lambda at: (choice.units[at].level, at)), OUTLINE_SHARE)
    for at in ranked[:NEIGHBOURED]:
        choice.add_under_heading(at)
        choice.add(at + 1)
        choice.add(at - 1)
    for at in ranked[NEIGHBOURED:]:
        choice.add_under_heading(at)
    for at in (at + distance for distance in (1, -1, 2, -2) for at in ranked):
        choice.add(at)
    for at in range(len(choice.units)):
        choice.add(at)


class _Choice:
    """The units kept so far, and an estimate of what they cost."""

    def __init__(self, form: Form, units: Sequence[Unit], token_budget: int) -> None:
        self.form = form
        self.units = units
        self.token_budget = token_budget
        self.headings = _headings(units)
        self.costs = [tokens.count(unit.text) + 1 for unit in units]
        self.kept: dict[int, None] = {}  # in the order in which they were taken
        self.part = ""  # of the unit after the last one, when the whole does not fit
        self.cost = MARKER_TOKENS + (tokens.count(form.legend) + 1 if form.legend else 0)

    def add(self, at: int) -> bool:
        """Keep a unit if it fits; tell whether it is kept."""
        if at in self.kept:
            return True
        if not 0 <= at < len(self.units):
            return False
        gaps = (at > 0 and at - 1 not in self.kept) + (at + 1 < len(self.units) and at + 1 not in self.kept) - 1
        cost = self.costs[at] + gaps * MARKER_TOKENS
        if self.cost + cost > self.token_budget:
            return False
        self.kept[at] = None
        self.cost += cost
        return True

    def add_heading(self, at: int) -> None:
        """Keep the heading of a unit, and its heading, if they fit."""
        for heading in self.headings[at]:
            self.add(heading)

    def add_under_heading(self, at: int) -> None:
        """Keep a unit and its heading if they fit."""
        if self.add(at):
            self.add_heading(at)

    def add_while(self, candidates: Iterable[int], share: float) -> None:
        """Keep units, in the given order, until they would cost more than a share of the budget."""
        allowed = self.token_budget * share
        for at in candidates:
            allowed -= self.costs[at]
            if allowed < 0 or not self.add(at):
                return

    def fill_from_start(self) -> None:
        """Keep the longest start."""
        for at in range(len(self.units)):
            if not self.add(at):
                left = self.token_budget - self.cost
                self.part = tokens.head(self.units[at].text, left) if left > 0 else ""
                return

    def fitting_text(self) -> str:
        """Return the text of the kept units, without the last taken of them if it costs too much after all."""
        while True:
            text = self._text()
            excess = tokens.count(text) - self.token_budget
            if excess <= 0:
                return text
            if not self.kept:
                return tokens.head(self.form.text, self.token_budget)
            if self.part:
                self.part = tokens.head(self.part, tokens.count(self.part) - excess)
                continue
            while self.kept and excess > 0:
                excess -= self.costs[self.kept.popitem()[0]]

    def _text(self) -> str:
        """Join the legend, the kept units and, where units are left out, markers."""
        shown: list[str] = [self.form.legend] if self.form.legend else []
        gaps: list[tuple[int, int]] = []
        places: list[int] = []
        done, following = 0, 0  # where the shown text ends, and the unit that comes after it
        for at in (*sorted(self.kept), len(self.units)):
            if at == len(self.units) and self.part:
                cut = self.units[following]
                shown.append(self.part)
                done = _cut_end(self.form, cut, self.part)
            if at > following and (gap := self._gap(done, at)) is not None:
                gaps.append(gap)
                places.append(len(shown))
                shown.append("")
            if at < len(self.units):
                shown.append(self.units[at].text)
                done, following = self.units[at].end, at + 1
        for place, marker in zip(places, self.form.source.markers(gaps), strict=True):
            shown[place] = marker
        return "\n".join(shown)

    def _gap(self, start: int, at: int) -> tuple[int, int] | None:
        """Return what is left out from a place up to a unit, or to the end."""
        source = self.form.source.text
        return _trimmed(source, start, self.units[at].start if at < len(self.units) else len(source))


def _trimmed(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return a span without the white space at its ends, or None when nothing else is in it."""
    gap = text[start:end]
    if not gap or gap.isspace():
        return None
    return start + len(gap) - len(gap.lstrip()), start + len(gap.rstrip())


def _cut_end(form: Form, unit: Unit, part: str) -> int:
    """Return where the shown part of a unit ends in the source; a unit in another form counts as left out whole."""
    if form.source.text.startswith(part, unit.start):
        return unit.start + len(part)
    return unit.start


def _headings(units: Sequence[Unit]) -> list[tuple[int, ...]]:
    """Return for each unit the headings above it, nearest first."""
    above: list[int] = []
    headings: list[tuple[int, ...]] = []
    for at, unit in enumerate(units):
        if unit.level:
            while above and units[above[-1]].level >= unit.level:
                above.pop()
        headings.append(tuple(reversed(above)))
        if unit.level:
            above.append(at)
    return headings


def _scores(
    units: Sequence[Unit], headings: Sequence[tuple[int, ...]], query_terms: Sequence[str]
) -> list[tuple[float, tuple[str, ...]]]:
    """Return each unit's score, under its headings, and the query's terms that it holds itself, rarest first."""
    own = scores.held_by([unit.text for unit in units], query_terms)
    documents = Counter(term for held in own for term in held.counts)
    rarest_first = sorted(filter(documents.__contains__, query_terms), key=documents.__getitem__)
    average = scores.average_length(own)
    pieces: list[scores.Held] = []
    for unit, held, above in zip(units, own, headings, strict=True):
        counts = Counter(held.counts)
        for heading in above[:HEADINGS_SCORED]:
            counts.update(own[heading].counts)
        length = max(held.length, int(average)) if unit.level else held.length
        pieces.append(scores.Held(counts, length))  # a heading is short, but not therefore the best answer
    ranks = {term: rank for rank, term in enumerate(rarest_first)}
    return [
        (score, tuple(sorted(held.counts, key=ranks.__getitem__)))
        for score, held in zip(scores.scores(pieces, rarest_first, average), own, strict=True)
    ]


def _around(form: Form, unit: Unit, words: Sequence[str], token_budget: int) -> str:
    """Cut a unit that exceeds the budget by itself around the rarest word of the query that it holds."""
    at, length = _place(unit.text, words)
    spare = token_budget - 2 * MARKER_TOKENS
    if spare >= MARKER_TOKENS:
        lead = unit.text[max(at - spare, 0) : at]
        start = at - len(tokens.head(lead[::-1], spare // 3))
        for allowed in range(spare, 0, -4):
            kept = tokens.head(unit.text[start:], allowed)
            if start + len(kept) < at + length:
                start, kept = at, tokens.head(unit.text[at:], allowed)
            text = _framed(form, unit.start + start, kept)
            if tokens.count(text) <= token_budget:
                return text
    return tokens.head(unit.text[at:], token_budget)


def _framed(form: Form, start: int, kept: str) -> str:
    """Put markers around a part of the source."""
    source = form.source.text
    before, after = _trimmed(source, 0, start), _trimmed(source, start + len(kept), len(source))
    marks = iter(form.source.markers([gap for gap in (before, after) if gap is not None]))
    return "\n".join([*([next(marks)] if before is not None else []), kept, *marks])


def _place(text: str, words: Sequence[str]) -> tuple[int, int]:
    """Return where the first of the words that can be found is, and its length."""
    for pattern in ("(?<![^\\W_]){}(?![^\\W_])", "{}"):
        for word in words:
            if (match := re.search(pattern.format(re.escape(word)), text, re.IGNORECASE)) is not None:
                return match.start(), match.end() - match.start()
    return 0, 0
