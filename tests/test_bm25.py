"""The formula, and ranking over facts."""

import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cavemem_mcp.bm25 import Posting, Scored, Totals, contribution, inverse_document_frequency, rank
from cavemem_mcp.terms import DocumentTerms, document_terms, query_terms


class Texts:
    """Facts about a list of texts, counted naively. The id of a text is its letter in reverse order of position."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.documents: list[DocumentTerms] = [document_terms(text) for text in texts]

    def totals(self) -> Totals:
        return Totals(len(self.documents), sum(document.length for document in self.documents))

    def document_frequencies(self, terms: Sequence[str]) -> Mapping[str, int]:
        found = {term: sum(term in document.frequencies for document in self.documents) for term in terms}
        return {term: df for term, df in found.items() if df}

    def postings(self, term: str) -> list[Posting]:
        return [
            Posting(number, document.frequencies[term], document.length)
            for number, document in enumerate(self.documents)
            if term in document.frequencies
        ]

    def ids(self, documents: Sequence[int]) -> Mapping[int, str]:
        return {number: self.id(number) for number in documents}

    def id(self, number: int) -> str:
        return f"id{len(self.documents) - number:04}"


def naive(texts: Texts, terms: Sequence[str], *, limit: int, threshold: float) -> tuple[list[Scored], bool]:
    count, length_sum = texts.totals()
    frequencies = texts.document_frequencies(terms)
    scored: list[Scored] = []
    for number, document in enumerate(texts.documents):
        score = 0.0
        for term in terms:
            if term in document.frequencies:
                idf = inverse_document_frequency(count, frequencies[term])
                score += contribution(idf, document.frequencies[term], document.length, length_sum / count)
        if score >= threshold:
            scored.append(Scored(texts.id(number), score))
    scored.sort(key=lambda hit: (-hit.score, hit.id))
    return scored[:limit], len(scored) > limit


@pytest.mark.parametrize(("documents", "df"), [(1, 1), (2, 1), (1000, 1), (1000, 500), (1_000_000, 999_999)])
def test_idf_is_the_logarithm_of_the_formula(documents: int, df: int) -> None:
    expected = math.log(1 + (documents - df + 0.5) / (df + 0.5))
    assert math.isclose(inverse_document_frequency(documents, df), expected, rel_tol=1e-15)


def test_a_contribution_is_the_formula() -> None:
    assert contribution(2.0, 3, 10, 20.0) == 2.0 * (3 * 2.5) / (3 + 1.5 * (1 - 0.75 + 0.75 * 10 / 20.0))


def test_nothing_shared_recalls_nothing() -> None:
    assert rank(Texts(["one", "two"]), ("three",), limit=5, threshold=0.1) == ((), False)
    assert rank(Texts([]), ("three",), limit=5, threshold=0.1) == ((), False)
    assert rank(Texts(["one"]), (), limit=5, threshold=0.1) == ((), False)


def test_equal_scores_are_ordered_by_id() -> None:
    best, more = rank(Texts(["fox a1", "fox a2", "fox a3", *["other"] * 9]), ("fox",), limit=2, threshold=0.1)
    assert [hit.id for hit in best] == ["id0010", "id0011"]
    assert more


def test_a_score_below_the_threshold_is_no_hit() -> None:
    facts = Texts(["common x"] * 20)
    assert rank(facts, ("common",), limit=5, threshold=0.1).best == ()
    assert len(rank(facts, ("common",), limit=5, threshold=0.001).best) == 5


WORDS = st.sampled_from(["common", "often", "rare", "only", "中文", "x", "y", "z"])


@given(
    st.lists(st.lists(WORDS, max_size=8).map(" ".join), max_size=30),
    st.lists(WORDS, max_size=5).map(" ".join),
    st.integers(1, 8),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)
def test_ranking_gives_the_bits_of_the_naive_formula(
    texts: list[str], query: str, limit: int, threshold: float
) -> None:
    facts, terms = Texts(texts), query_terms(query)
    best, more = rank(facts, terms, limit=limit, threshold=threshold or 1e-12)
    assert (list(best), more) == naive(facts, terms, limit=limit, threshold=threshold or 1e-12)
