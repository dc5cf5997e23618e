"""Exact o200k_base token counts and cuts, offline. Owns the one encoding that budgets are measured in.

The vocabulary (in the `toktok-rs` wheel) loads on first use, which takes about a quarter of a second.
"""

import sys

ENCODING = "o200k_base"


def count(text: str) -> int:
    """Return the number of o200k_base tokens of a text; text that looks like a special token counts as plain text."""
    import toktok

    return toktok.truncate(text, sys.maxsize, ENCODING)[1]  # a microsecond; `batch_count` starts a thread each time


def head(text: str, token_budget: int) -> str:
    """Return the longest start of a text that costs at most `token_budget` tokens, cut between characters.

    The count is taken on the result, so the budget holds although cutting may change how the end is split into tokens.
    """
    import toktok

    allowed = token_budget
    while allowed > 0:
        start, _ = toktok.truncate(text, allowed, ENCODING)
        if count(start) <= token_budget:
            return start
        allowed -= 1
    return ""
