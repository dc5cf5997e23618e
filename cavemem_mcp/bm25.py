"""Exact BM25 over facts: the formula and the best documents of a query. Pure: knows no store, reads nothing by itself.

A document is a number; facts about documents come from a `Facts`, which every store provides. Equal facts give equal
bits on every machine: contributions are added in the order of the query's terms, and idf is rounded correctly.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Context, Decimal
from typing import Final, NamedTuple, Protocol

K1: Final = 1.5
B: Final = 0.75


class Totals(NamedTuple):
    """How many current memories there are, and the sum of their lengths in runs."""

    documents: int
    length_sum: int


class Posting(NamedTuple):
    """One term in one document: how often it occurs there, and the document's length in runs."""

    document: int
    frequency: int
    length: int


class Facts(Protocol):
    """What ranking asks of a store; all answers belong to one moment and cover current memories only."""

    def totals(self) -> Totals:
        """Return the number of documents and the sum of their lengths."""
        ...

    def document_frequencies(self, terms: Sequence[str]) -> Mapping[str, int]:
        """Return, for those of the given terms that occur, in how many documents each does."""
        ...

    def postings(self, term: str) -> Iterable[Posting]:
        """Return every posting of a term, in any order."""
        ...

    def ids(self, documents: Sequence[int]) -> Mapping[int, str]:
        """Return the memory ids of the given documents."""
        ...


class Scored(NamedTuple):
    """A ranked memory."""

    id: str
    score: float


class Ranking(NamedTuple):
    """The best memories of a query, best first, and whether more than these reached the threshold."""

    best: tuple[Scored, ...]
    more: bool


def inverse_document_frequency(documents: int, document_frequency: int) -> float:
    """Return ln(1 + (n - df + 0.5)/(df + 0.5)), correctly rounded (the C library's ln differs between platforms)."""
    ratio = 1 + (documents - document_frequency + 0.5) / (document_frequency + 0.5)
    return float(Context(prec=30).ln(Decimal(ratio)))


def contribution(idf: float, frequency: int, length: int, average_length: float) -> float:
    """Return what one term adds to the score of a document of the given length."""
    return idf * (frequency * (K1 + 1)) / (frequency + K1 * (1 - B + B * length / average_length))


def rank(facts: Facts, terms: Sequence[str], *, limit: int, threshold: float) -> Ranking:
    """Return the `limit` best documents that score at least `threshold`, by score descending, then id.

    `terms` are distinct; those that occur nowhere add nothing.
    """
    documents, length_sum = facts.totals()
    frequencies = facts.document_frequencies(terms)
    scores: dict[int, float] = {}
    for term in terms:
        if term in frequencies:
            idf = inverse_document_frequency(documents, frequencies[term])
            for document, frequency, length in facts.postings(term):
                added = contribution(idf, frequency, length, length_sum / documents)
                scores[document] = scores.get(document, 0.0) + added
    reached = [document for document, score in scores.items() if score >= threshold]
    if len(reached) > limit:  # only documents that could be among the best need their ids
        bar = sorted((scores[document] for document in reached), reverse=True)[limit - 1]
        candidates = [document for document in reached if scores[document] >= bar]
    else:
        candidates = reached
    ids = facts.ids(candidates)
    best = sorted((Scored(ids[document], scores[document]) for document in candidates), key=lambda s: (-s.score, s.id))
    return Ranking(tuple(best[:limit]), more=len(reached) > limit)
