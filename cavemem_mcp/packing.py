"""Ranked texts → what fits a token budget. Pure: how a text is shortened and its original kept is the caller's."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol


class Ranked(NamedTuple):
    """A recalled memory before packing."""

    id: str
    score: float
    text: str


class Shortened(NamedTuple):
    """A text as it may be injected: the original itself where nothing was gained. Tokens are counted exactly."""

    text: str
    tokens: int
    tokens_before: int
    content_type: str
    method: str


class Shorten(Protocol):
    """Makes a text cheaper, and fits it into a token budget where one is given."""

    def __call__(self, text: str, token_budget: int | None = None, /) -> Shortened:
        """Return the cheapest honest form of a text; without a budget it may be the original."""
        ...


Keep = Callable[[Ranked, Shortened], bool]
"""Keeps the original of a shortened memory; False when it could not be kept."""


class Packed(NamedTuple):
    """What goes into the result: a memory and the form of it that fits."""

    ranked: Ranked
    shortened: Shortened

    @property
    def is_whole(self) -> bool:
        """Whether the text is the whole original."""
        return self.shortened.text == self.ranked.text


class Packing(NamedTuple):
    """The packed memories in rank order, and how many of the ranked ones the budget left out."""

    packed: tuple[Packed, ...]
    omitted: int


def pack(
    ranked: Iterable[Ranked], token_budget: int | None, *, shorten: Shorten, whole: Shorten, keep: Keep
) -> Packing:
    """Take each memory, in rank order, in its shortened form if that still fits the budget (in tokens; None: no cap).

    A first memory that alone exceeds the budget comes back alone, cut to fit. A shortened memory whose original cannot
    be kept is taken whole instead. Memories are shortened only while there is room.

    Args:
        ranked: The memories, best first.
        token_budget: Most tokens of all texts together.
        shorten: Makes a memory's text cheaper.
        whole: Counts a text and leaves it as it is.
        keep: Asked before a shortened form is used.
    """
    packed: list[Packed] = []
    omitted = 0
    left = token_budget
    for position, memory in enumerate(ranked):
        if left == 0:
            omitted += 1
            continue
        shortened = shorten(memory.text)
        if _fits(shortened, left) and shortened.text != memory.text and not keep(memory, shortened):
            shortened = whole(memory.text)
        if _fits(shortened, left):
            packed.append(Packed(memory, shortened))
            left = None if left is None else left - shortened.tokens
        elif position == 0:
            cut = shorten(memory.text, left)
            keep(memory, cut)  # where it is not kept, the memory itself still recovers
            packed.append(Packed(memory, cut))
            left = 0
        else:
            omitted += 1
    return Packing(tuple(packed), omitted)


def _fits(shortened: Shortened, left: int | None) -> bool:
    return left is None or shortened.tokens <= left
