"""Counting and cutting in o200k_base tokens."""

import toktok
from hypothesis import given
from hypothesis import strategies as st

from cavemem_mcp import tokens


def test_counts_are_those_of_o200k_base() -> None:
    assert tokens.count("") == 0
    assert tokens.count("hello world") == 2
    assert tokens.count("🧠") == 3
    assert tokens.count("<|endoftext|>") > 1


@given(st.text() | st.text(st.sampled_from("ab \n\t🧠é后'.1<|>\u200d\u0301")))
def test_a_count_is_that_of_the_tokens_themselves(text: str) -> None:
    encoded = toktok.batch_count([text], tokens.ENCODING, 1)
    assert [tokens.count(text)] == encoded


def test_a_head_never_holds_part_of_a_character() -> None:
    assert tokens.head("🧠 brain", 1) == ""
    assert tokens.head("🧠 brain", 3) == "🧠"


def test_a_head_uses_nearly_all_of_the_budget() -> None:
    text = "the quay crane moved container 7919 and another one " * 200
    assert [tokens.count(tokens.head(text, budget)) for budget in (1, 21, 500)] == [1, 21, 500]


def test_a_text_that_fits_is_its_own_head() -> None:
    assert tokens.head("hello world", 2) == "hello world"
    assert tokens.head("hello world", 0) == ""


@given(st.text(st.sampled_from("ab \n\t🧠é后'.1<|>\u200d\u0301")), st.integers(0, 12))
def test_a_head_is_a_start_within_the_budget(text: str, token_budget: int) -> None:
    head = tokens.head(text, token_budget)
    assert text.startswith(head)
    assert tokens.count(head) <= token_budget
