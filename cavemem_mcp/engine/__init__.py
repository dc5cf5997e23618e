"""Make the same facts cheaper: deterministic, offline, without a model; knows nothing of stores, handles, protocols."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from cavemem_mcp import tokens
from cavemem_mcp.engine import detect, focus
from cavemem_mcp.engine.units import Form, Source, hides, looks_compressed, plain
from cavemem_mcp.errors import origin_of

SAVING_MIN: Final = 0.05
"""A form that saves a smaller part of the tokens is not worth reading."""
LEGEND_SHARE: Final = 0.3
"""Largest part of a budget that may go to a form's legend."""
_ROUNDS_MAX: Final = 8

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Compressed:
    """What a text became.

    Attributes:
        text: The result; the original string itself when nothing was gained.
        content_type: What the text was taken for.
        method: How it was made: `none` for the original.
        tokens_before: o200k_base tokens of the original.
        tokens_after: o200k_base tokens of `text`.
        lossless: Whether the original's values can be read back from `text`.
    """

    text: str
    content_type: str
    method: str
    tokens_before: int
    tokens_after: int
    lossless: bool


def compress(text: str, *, query_terms: Sequence[str] = (), token_budget: int | None = None) -> Compressed:
    """Return a text in a cheaper form, within `token_budget` tokens if there is one, keeping what the query asks for.

    A result is recognised by its markers and returned unchanged, so that compressing again changes nothing.

    Args:
        text: At most 256 KiB.
        query_terms: Terms as `terms.query_terms` makes them; without them a budget keeps the start.
        token_budget: Most tokens that the result may cost; None is no cap.
    """
    return Compressible(text, query_terms).compressed(token_budget)


class Compressible:
    """A text and its form for one query, which is worked out once for all budgets."""

    def __init__(self, text: str, query_terms: Sequence[str] = (), *, tokens_before: int | None = None) -> None:
        """Take the arguments of `compress`, and what the text costs if that is known."""
        self.text = text
        self._query_terms = query_terms
        self._before = tokens.count(text) if tokens_before is None else tokens_before
        self._content_type, self._form = _structural(text, query_terms)

    def compressed(self, token_budget: int | None = None) -> Compressed:
        """Return what `compress` returns for this budget."""
        fits = token_budget is None or self._before <= token_budget
        if not (self._form.needs_budget and fits):
            after = self._cheaper_tokens
            if after is not None and (token_budget is None or after <= token_budget):
                return self._made(self._form.text, self._form.method, after, lossless=self._form.lossless)
        if token_budget is None or fits:
            return self._made(self.text, "none", self._before, lossless=True)
        focused = _focused(self.text, self._form, self._query_terms, token_budget)
        return self._made(focused, "focus", tokens.count(focused), lossless=False)

    @cached_property
    def _cheaper_tokens(self) -> int | None:
        """What the form costs, if it saves enough and would stay as it is."""
        if self._form.text == self.text:
            return None
        after = tokens.count(self._form.text)
        is_cheaper = after <= self._before * (1 - SAVING_MIN) and _is_stable(self._form, self._query_terms)
        return after if is_cheaper else None

    def _made(self, text: str, method: str, after: int, *, lossless: bool) -> Compressed:
        return Compressed(
            text=text,
            content_type=self._content_type,
            method=method,
            tokens_before=self._before,
            tokens_after=after,
            lossless=lossless,
        )


def _structural(text: str, query_terms: Sequence[str]) -> tuple[str, Form]:
    """Return a text's type and its form of that type; the text as it is where that fails or hides what is asked for."""
    source = Source(text)
    if looks_compressed(text):
        return "prose", plain(source)
    try:
        content_type, form = detect.form(source, query_terms)
        is_hiding = not form.lossless and hides(form.text, text, query_terms)
    except Exception as error:
        logger.warning("a text could not be compressed and stays as it is: %s", origin_of(error))
        return "prose", plain(source)
    return content_type, plain(source) if is_hiding else form


def _is_stable(form: Form, query_terms: Sequence[str]) -> bool:
    """Tell whether compressing a form again would leave it."""
    if looks_compressed(form.text):
        return True
    _, again = _structural(form.text, query_terms)
    return again.needs_budget or tokens.count(again.text) > tokens.count(form.text) * (1 - SAVING_MIN)


def _focused(text: str, form: Form, query_terms: Sequence[str], token_budget: int) -> str:
    """Return what the query needs of a text, at most `token_budget` tokens of it."""
    if tokens.count(form.legend) > token_budget * LEGEND_SHARE:
        form = plain(Source(text))
    try:
        focused = focus.select(form, query_terms, token_budget)
    except Exception as error:
        logger.warning("a text could not be cut by its units and is cut at the head: %s", origin_of(error))
        focused = tokens.head(text, token_budget)
    if tokens.count(focused) > token_budget:
        focused = tokens.head(focused, token_budget)
    return _settled(focused, query_terms)


def _settled(focused: str, query_terms: Sequence[str]) -> str:
    """Return a cut that compressing again leaves; one with room for a marker is such a cut already."""
    for _ in range(_ROUNDS_MAX):
        if looks_compressed(focused):
            return focused
        again = compress(focused, query_terms=query_terms)
        if again.text == focused:
            return focused
        focused = again.text
    return ""
