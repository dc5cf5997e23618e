"""How well the pieces of a text answer a query: BM25 over the pieces, with the terms of the recall itself."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from cavemem_mcp import bm25, terms


class Held(NamedTuple):
    """What a piece holds: how often each term of the query that is in it, and how many words it has."""

    counts: dict[str, int]
    length: int


def held_by(texts: Sequence[str], query_terms: Sequence[str]) -> list[Held]:
    """Return what each text holds of a query."""
    asked = frozenset(query_terms)
    documents = map(terms.document_terms, texts)
    return [
        Held({term: count for term, count in document.frequencies.items() if term in asked}, document.length)
        for document in documents
    ]


def average_length(pieces: Sequence[Held]) -> float:
    """Return the mean length of the pieces, at least one word."""
    return max(sum(piece.length for piece in pieces) / max(len(pieces), 1), 1.0)


def scores(pieces: Sequence[Held], order: Sequence[str], average: float) -> list[float]:
    """Return the score of each piece; contributions are added in the order of the terms, which fixes the last bit."""
    ranks = {term: rank for rank, term in enumerate(order)}
    documents = Counter(term for piece in pieces for term in piece.counts)
    weights = {term: bm25.inverse_document_frequency(len(pieces), count) for term, count in documents.items()}
    totals: list[float] = []
    for piece in pieces:
        total = 0.0
        for term in sorted(piece.counts, key=ranks.__getitem__):
            total += bm25.contribution(weights[term], piece.counts[term], piece.length, average)
        totals.append(total)
    return totals
