"""Ranked texts → what fits a token budget. Pure: counts and cuts, keeps nothing."""

from collections.abc import Iterable
from typing import NamedTuple

from cavemem_mcp import tokens


class Ranked(NamedTuple):
    """A recalled memory before packing."""

    id: str
    score: float
    text: str


class Packed(NamedTuple):
    """What goes into the result: the text to inject, its token count, and whether it is the whole original."""

    ranked: Ranked
    text: str
    tokens: int
    is_whole: bool


class Packing(NamedTuple):
    """The packed memories in rank order, and how many of the ranked ones the budget left out."""

    packed: tuple[Packed, ...]
    omitted: int


def pack(ranked: Iterable[Ranked], token_budget: int | None) -> Packing:
    """Take each memory, in rank order, that still fits the budget (in tokens; None is no cap).

    A first memory that alone exceeds the budget comes back alone, as a head that fits.
    """
    packed: list[Packed] = []
    omitted = 0
    left = token_budget
    for position, memory in enumerate(ranked):
        cost = tokens.count(memory.text)
        if left is None or cost <= left:
            packed.append(Packed(memory, memory.text, cost, is_whole=True))
            left = None if left is None else left - cost
        elif position == 0:
            head = tokens.head(memory.text, left)
            packed.append(Packed(memory, head, tokens.count(head), is_whole=False))
            left = -1  # nothing fits beside a head
        else:
            omitted += 1
    return Packing(tuple(packed), omitted)
