"""What a text can be found by."""

import hashlib
import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cavemem_mcp import terms
from cavemem_mcp.terms import document_terms, query_terms

DATA = Path(__file__).parent / "data"
SPACED = st.text(
    st.characters(exclude_categories=["Cs"]).filter(lambda c: c == terms._folded(c) == c.lower() or c.isascii())
)


def fold_table() -> list[str]:
    return [terms._folded(chr(point)) for point in range(0x110000) if not 0xD800 <= point < 0xE000]


def test_the_whole_character_table_is_the_same_on_every_python() -> None:
    digest = hashlib.sha256("".join(fold_table()).encode()).hexdigest()
    assert digest == "0abc592d78a8e845aaee49c25eea12b87e119a8b7f110f5471746552267fd501"


def test_characters_assigned_after_unicode_14_separate() -> None:
    ranges: list[tuple[int, int]] = json.loads((DATA / "word_characters_after_unicode_14.json").read_text())["ranges"]
    assert all(terms._folded(chr(point)) == " " for start, end in ranges for point in range(start, end + 1))
    assert query_terms("ab\u0cf3cd") == ("ab", "cd")


def test_every_letter_and_decimal_digit_of_unicode_14_is_a_word_character() -> None:
    assigned_later = {
        point
        for start, end in json.loads((DATA / "word_characters_after_unicode_14.json").read_text())["ranges"]
        for point in range(start, end + 1)
    }
    for point in range(0x110000):
        category = unicodedata.category(chr(point))
        if (category[0] == "L" or category == "Nd") and point not in assigned_later:
            assert terms._folded(chr(point)) != " ", hex(point)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Deploys: every Tuesday, 02:00!", ("deploys", "every", "tuesday", "02", "00")),
        ("snake_case camelCase v2.0", ("snake", "case", "camelcase", "v2", "0")),
        ("the who and a why", ()),
        ("İstanbul ΣΑΣ Straße", ("istanbul", "σασ", "straße")),
        ("x² ⅷ ③ 🎉 a\u200db", ("x", "b")),
        ("cafe\u0301", ("cafe",)),
        ("to be or not to be", ("not",)),
        ("gen后", ("gen", "后")),
        ("the后", ("后",)),
        ("食べる", ("食べ", "べる")),
        ("กินข้าว", ("กิน", "ินข", "นข้", "ข้า", "้าว")),
        ("กิ", ("กิ",)),
        ("๓๔๕", ("๓๔๕",)),
        ("一二三", ("一二三",)),
        ("一二三四", ("一二三", "二三四")),
        ("東京一二三", ("東京", "京一", "一二", "二三")),
        ("same Same SAME other", ("same", "other")),
    ],
)
def test_a_query_has_these_terms(text: str, expected: tuple[str, ...]) -> None:
    assert query_terms(text) == expected


def test_a_document_counts_each_run_once_however_it_is_cut() -> None:
    found = document_terms("東京一二三 gen后 the 食べる")
    assert found.length == 4
    assert found.frequencies["一二三"] == found.frequencies["東京"] == found.frequencies["東"] == 1
    assert document_terms("会会会").frequencies == {"会会": 2, "会": 3}


def test_every_query_term_of_a_text_stands_in_the_text_itself() -> None:
    for text in ("東京一二三年の会議", "กินข้าวแล้ว", "mixed 中文 and English"):
        assert set(query_terms(text)) <= set(document_terms(text).frequencies)


@pytest.mark.parametrize("part", ["一二三", "二三四五", "一二", "四五号", "电话", "号"])
def test_a_part_of_a_longer_run_finds_it_numerals_included(part: str) -> None:
    assert set(query_terms(part)) <= set(document_terms("电话一二三四五号").frequencies)


@given(st.text())
def test_any_text_can_be_found_by_its_own_terms(text: str) -> None:
    found = document_terms(text)
    assert set(query_terms(text)) <= set(found.frequencies)
    assert (found.length == 0) == (not found.frequencies)
    assert all(term == term.strip() and term for term in found.frequencies)


@given(st.text(st.characters(max_codepoint=127)))
def test_the_ascii_path_gives_what_the_general_path_gives(text: str) -> None:
    general = document_terms(text + " é")
    expected = document_terms(text)
    assert general.frequencies == {**expected.frequencies, "é": 1}
    assert general.length == expected.length + 1


@given(SPACED, st.text())
def test_scripts_without_spaces_beside_a_text_change_none_of_its_terms(text: str, other: str) -> None:
    if terms._unspaced().search(text):
        return
    alone = document_terms(text).frequencies
    beside = document_terms(f"{text} 東京の会議 กินข้าว").frequencies
    assert all(beside[term] == frequency for term, frequency in alone.items())


@given(SPACED)
def test_spaced_text_follows_the_plain_rule_exactly(text: str) -> None:
    if terms._unspaced().search(text):
        return
    words = "".join(c.lower() if c.isalpha() or c.isdecimal() else " " for c in text).split(" ")
    expected = [word for word in words if word and word not in terms.FUNCTION_WORDS]
    found = document_terms(text)
    assert found.length == len(expected)
    assert found.frequencies == {word: expected.count(word) for word in expected}
