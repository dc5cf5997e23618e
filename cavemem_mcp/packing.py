"""Ranked texts → what fits a token budget. Pure: how a text is shortened and its original kept is the caller's."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

SHORTENED_BYTES_MAX: Final = 1 << 20
"""How much text one recall shortens; later hits come back whole or not at all. Bounds the work of a recall."""
TOKEN_BYTES_MAX: Final = 128
"""No o200k_base token is longer: what has more bytes than this times the budget cannot fit whole."""


class Ranked(NamedTuple):
    """A recalled memory before packing; `is_recoverable` when its handle recovers without a kept original."""

    id: str
    score: float
    text: str
    is_recoverable: bool = True


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


def pack(
    ranked: Iterable[Ranked], token_budget: int | None, *, shorten: Shorten, whole: Shorten, keep: Keep
) -> tuple[Packed, ...]:
    """Take each memory, in rank order, in its shortened form if that still fits the budget (in tokens; None: no cap).

    A first memory that alone exceeds the budget comes back alone, cut to fit. A shortened memory whose original cannot
    be kept is taken whole instead. Memories are read and shortened only while there is room.

    Args:
        ranked: The memories, best first.
        token_budget: Most tokens of all texts together.
        shorten: Makes a memory's text cheaper.
        whole: Counts a text and leaves it as it is.
        keep: Asked before a shortened form is used.
    """
    packed: list[Packed] = []
    left = token_budget
    shortened_bytes = 0
    for position, memory in enumerate(ranked):
        size = len(memory.text.encode())
        if position and shortened_bytes + size > SHORTENED_BYTES_MAX:
            if left is not None and size > left * TOKEN_BYTES_MAX:
                continue
            shortened = whole(memory.text)
        else:
            shortened_bytes += size
            shortened = shorten(memory.text)
        if _fits(shortened, left) and shortened.text != memory.text and not keep(memory, shortened):
            shortened = whole(memory.text)
        if _fits(shortened, left):
            packed.append(Packed(memory, shortened))
            left = None if left is None else left - shortened.tokens
        elif position == 0:
            cut = shorten(memory.text, left)
            if keep(memory, cut) or memory.is_recoverable:
                packed.append(Packed(memory, cut))
                break
        if left == 0:
            break
    return tuple(packed)


def _fits(shortened: Shortened, left: int | None) -> bool:
    return left is None or shortened.tokens <= left
