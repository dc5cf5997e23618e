"""Ranking equals the formula bit for bit, and reads only what can matter."""

import math
import random
from collections import Counter
from decimal import Context, Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cavemem_mcp import bm25
from cavemem_mcp.terms import DocumentTerms
from tests import bm25_oracle
from tests.facts import CountingFacts, MemoryFacts

Documents = dict[str, DocumentTerms]


def some_documents(seed: int, *, size: int, vocabulary: int, skew: float, lengths: tuple[int, int]) -> Documents:
    rng = random.Random(seed)
    words = [f"w{number}" for number in range(vocabulary)]
    weights = [(number + 1) ** -skew for number in range(vocabulary)]
    documents: Documents = {}
    for _ in range(size):
        length = rng.randint(*lengths)
        drawn = Counter(rng.choices(words, weights, k=length))
        documents[f"mem_{rng.randrange(16**16):016x}"] = DocumentTerms(dict(drawn), length)
    return documents


@st.composite
def documents_and_words(draw: st.DrawFn) -> tuple[Documents, list[str]]:
    """Draw a store's documents, small and large, with ties or without, and a query's words."""
    vocabulary = draw(st.integers(1, 60))
    documents = some_documents(
        draw(st.integers(0, 2**32)),
        size=draw(st.one_of(st.integers(0, 30), st.integers(0, 2000))),
        vocabulary=vocabulary,
        skew=draw(st.sampled_from([0.0, 0.5, 1.07, 2.0])),
        lengths=draw(st.sampled_from([(1, 1), (4, 4), (1, 8), (1, 60)])),
    )
    numbers = draw(st.lists(st.integers(0, vocabulary), min_size=1, max_size=12, unique=True))
    return documents, [f"w{number}" for number in numbers]


LIMITS = st.one_of(st.integers(1, 8), st.sampled_from([50, 1000]))


@settings(deadline=None, max_examples=150)
@given(
    asked=documents_and_words(), limit=LIMITS, threshold=st.sampled_from([0.0, 0.1, 1.0, 4.0]), honours=st.booleans()
)
def test_ranking_equals_the_formula_bit_for_bit(
    asked: tuple[Documents, list[str]], limit: int, threshold: float, *, honours: bool
) -> None:
    documents, words = asked

    ranking = bm25.rank(MemoryFacts(documents, honours_cuts=honours), words, limit=limit, threshold=threshold)

    assert ranking == bm25_oracle.rank_documents(documents, words, limit=limit, threshold=threshold)


@settings(deadline=None, max_examples=60)
@given(asked=documents_and_words(), limit=LIMITS, at=st.floats(0, 1), direction=st.sampled_from([-1, 0, 1]))
def test_a_threshold_at_a_score_splits_exactly_there(
    asked: tuple[Documents, list[str]], limit: int, at: float, direction: int
) -> None:
    documents, words = asked
    every = bm25_oracle.rank_documents(documents, words, limit=len(documents), threshold=0.0).best
    score = every[round(at * (len(every) - 1))].score if every else 0.0
    threshold = math.nextafter(score, direction * math.inf) if direction else score

    ranking = bm25.rank(MemoryFacts(documents), words, limit=limit, threshold=threshold)

    assert ranking == bm25_oracle.rank_documents(documents, words, limit=limit, threshold=threshold)


@given(n=st.integers(1, 10**7), share=st.floats(0, 1))
def test_inverse_document_frequency_is_correctly_rounded(n: int, share: float) -> None:
    df = max(1, round(n * share))

    precise = Context(prec=60).ln(Decimal(1 + (n - df + 0.5) / (df + 0.5)))

    assert bm25.inverse_document_frequency(n, df) == float(precise)


def test_ranking_is_exact_where_too_many_postings_are_read_to_keep_them() -> None:
    documents = some_documents(5, size=6000, vocabulary=12, skew=0.0, lengths=(6, 12))
    words = [f"w{number}" for number in range(12)]

    ranking = bm25.rank(MemoryFacts(documents), words, limit=50, threshold=0.1)

    assert ranking == bm25_oracle.rank_documents(documents, words, limit=50, threshold=0.1)


def test_nothing_is_found_in_an_empty_store() -> None:
    assert bm25.rank(MemoryFacts({}), ["word"], limit=5, threshold=0.1) == bm25.Ranking((), more=False)


def test_nothing_is_found_by_no_words() -> None:
    facts = MemoryFacts({"mem_1": DocumentTerms({"word": 1}, 1)})

    assert bm25.rank(facts, [], limit=5, threshold=0.1) == bm25.Ranking((), more=False)


@pytest.mark.parametrize(("limit", "more"), [(1, True), (2, True), (3, False), (4, False)])
def test_more_says_whether_the_limit_left_documents_out(limit: int, more: bool) -> None:  # noqa: FBT001 - a parameter of the test
    documents = {f"mem_{number}": DocumentTerms({"word": 1}, 1) for number in range(3)}
    documents |= {f"mem_other{number}": DocumentTerms({"other": 1}, 1) for number in range(9)}

    ranking = bm25.rank(MemoryFacts(documents), ["word"], limit=limit, threshold=0.1)

    assert [id for id, _ in ranking.best] == ["mem_0", "mem_1", "mem_2"][:limit]
    assert ranking.more is more


@pytest.mark.parametrize(
    ("words", "share"),
    [
        (["w1"], 0.15),  # one very common word
        (["w700", "w900", "w1"], 0.1),  # rare words with a very common one
        (["w900", "w500", "w200", "w60", "w20", "w10", "w5", "w4", "w3", "w2", "w1", "w0"], 0.35),
    ],
)
def test_most_postings_of_common_words_are_not_read(words: list[str], share: float) -> None:
    documents = some_documents(7, size=10_000, vocabulary=5000, skew=1.07, lengths=(15, 45))
    facts = CountingFacts(MemoryFacts(documents))

    ranking = bm25.rank(facts, words, limit=5, threshold=0.1)

    assert ranking == bm25_oracle.rank_documents(documents, words, limit=5, threshold=0.1)
    assert facts.postings_read < share * sum(facts.document_frequencies(words).values())
    assert facts.ids_read <= 10
