"""Within a budget the words that a query asks for stay, with what is around them, in the source's order."""

import itertools
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cavemem_mcp import terms, tokens
from cavemem_mcp.engine import compress
from cavemem_mcp.terms import document_terms, query_terms
from tests.bench.engine_texts import LongText, long_texts
from tests.engine import inputs

FILLER = "The quick brown fox jumps over the lazy dog while nobody is looking at it at all. "


def _notes(*, needle: str, paragraphs: int = 80, at: int = 60) -> str:
    lines = ["# Opening", ""]
    for number in range(paragraphs):
        if number % 20 == 0:
            lines += [f"## Part {number // 20}", ""]
        lines += [needle if number == at else f"{FILLER * 4}Paragraph {number}.", ""]
    return "\n".join(lines)


@inputs.checked
@given(st.sampled_from(list(inputs.BASE)), st.integers(0, 10**6), st.integers(150, 2000))
def test_a_word_of_the_query_stays_whatever_the_type(name: str, seed: int, budget: int) -> None:
    words = sorted(document_terms(inputs.BASE[name]).frequencies)
    word = words[seed % len(words)]
    result = compress(inputs.BASE[name], query_terms=(word,), token_budget=budget)
    assert word in document_terms(result.text).frequencies


@inputs.checked
@given(st.integers(40, 4000), st.integers(60, 3000))
def test_a_match_inside_one_long_line_is_cut_around(place: int, budget: int) -> None:
    words = ["filler"] * 4000
    words[place - 1] = "needle"
    result = compress(" ".join(words), query_terms=("needle",), token_budget=budget)
    assert "needle" in result.text
    assert result.tokens_after <= budget


def test_a_unit_larger_than_the_budget_is_cut_around_the_match_with_markers() -> None:
    text = _notes(needle=FILLER * 3 + "The needle lies here. " + FILLER)
    result = compress(text, query_terms=("needle",), token_budget=70)
    lines = result.text.split("\n")
    assert lines[0].startswith("[… L1-")
    assert lines[-1].startswith("[… L")
    assert "needle" in result.text


def test_opening_outline_and_neighbours_come_with_the_match() -> None:
    text = _notes(needle="The needle lies here.")
    result = compress(text, query_terms=("needle",), token_budget=1500)
    assert result.text.startswith("# Opening")
    for part in range(4):
        assert f"## Part {part}" in result.text
    before, after = result.text.split("The needle lies here.")
    assert FILLER.strip() in before[-700:]
    assert FILLER.strip() in after[:700]


def test_below_a_thousand_tokens_no_opening_is_kept_for_its_own_sake() -> None:
    needles = "\n\n".join(f"The needle number {number} lies here. " + FILLER * 4 for number in range(40))
    text = "\n\n".join(["An opening of no use. " + FILLER * 4] + [FILLER * 5] * 40 + [needles])
    assert "opening of no use" not in compress(text, query_terms=("needle",), token_budget=600).text


def test_without_a_query_or_a_match_the_head_stays_with_a_marker_for_the_rest() -> None:
    text = _notes(needle="The needle lies here.")
    for words in ((), ("absent",)):
        result = compress(text, query_terms=words, token_budget=500)
        *kept, marker = result.text.split("\n")
        assert text.startswith("\n".join(kept).split("\n")[0])
        assert re.fullmatch(r"\[… L[0-9]+-169 · [0-9]+ tok\]", marker)
        assert result.tokens_after > 450


@pytest.mark.parametrize("text", long_texts()[:22], ids=lambda text: text.name)
@pytest.mark.parametrize("budget", [1, 7, 15, 33, 64, 150, 1000])
def test_any_budget_holds_for_every_type(text: LongText, budget: int) -> None:
    for words in ((), query_terms(text.questions[0].query)):
        result = compress(text.text, query_terms=words, token_budget=budget)
        assert tokens.count(result.text) == result.tokens_after <= budget
        assert result.text


def test_words_in_scripts_without_spaces_are_found() -> None:
    text = "\n\n".join(
        ["今日は天気がとても良いので散歩に行きました。" * 8] * 60
        + ["表示設定は画面の右上にある。"]
        + ["猫は窓のそばで眠っています。" * 8] * 60
    )
    result = compress(text, query_terms=query_terms("表示設定"), token_budget=300)
    assert "表示設定は画面の右上にある。" in result.text


def test_a_word_that_only_the_escapes_of_a_text_hold_is_shown_in_the_text_as_it_is() -> None:
    rows = [{"id": number, "name": f"user{number}", "note": "a note of no use"} for number in range(300)]
    rows[200]["name"] = "caf\u00e9"
    result = compress(json.dumps(rows, indent=2), query_terms=("u00e9",), token_budget=200)
    assert '"name": "caf\\u00e9"' in result.text


def test_a_word_means_a_whole_word() -> None:
    text = "\n\n".join(
        [f"concatenated strings {FILLER * 4}"] * 40 + [f"the cat sleeps {FILLER * 4}"] + [FILLER * 5] * 40
    )
    assert "the cat sleeps" in compress(text, query_terms=terms.query_terms("cat"), token_budget=300).text


def test_neighbouring_records_stand_together_without_a_marker() -> None:
    rows = [{"id": number, "name": f"user{number}", "note": "a note that is the same length"} for number in range(200)]
    for indent in (None, 2):
        result = compress(json.dumps(rows, indent=indent), query_terms=("user100",), token_budget=600)
        ids = [int(line.split()[0]) for line in result.text.split("\n") if line[:1].isdigit()]
        assert len(ids) > 12
        markers = sum(line.startswith("[… L") for line in result.text.split("\n"))
        assert markers == sum(after - before > 1 for before, after in itertools.pairwise([-1, *ids, 200]))
