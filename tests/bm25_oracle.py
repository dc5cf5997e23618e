"""BM25 as the formula says it: every memory is read and cut into terms for every query. What recall must equal."""

from collections.abc import Mapping, Sequence
from decimal import Context, Decimal

from cavemem_mcp import terms
from cavemem_mcp.bm25 import Ranking, Scored


def rank(memories: Mapping[str, str], query: str, *, limit: int, threshold: float) -> Ranking:
    """Rank current memories (id → text) for a query."""
    documents = {id: terms.document_terms(text) for id, text in memories.items()}
    return rank_documents(documents, terms.query_terms(query), limit=limit, threshold=threshold)


def rank_documents(
    documents: Mapping[str, terms.DocumentTerms], words: Sequence[str], *, limit: int, threshold: float
) -> Ranking:
    """Rank documents (id → terms) for distinct words, adding contributions in the order of these."""
    frequencies = {word: sum(word in document.frequencies for document in documents.values()) for word in words}
    length_sum = sum(document.length for document in documents.values())
    scores: dict[str, float] = {}
    for word in words:
        n, df = len(documents), frequencies[word]
        if df:
            idf = float(Context(prec=30).ln(Decimal(1 + (n - df + 0.5) / (df + 0.5))))
            for id, document in documents.items():
                if word in document.frequencies:
                    f, dl = document.frequencies[word], document.length
                    added = idf * (f * (1.5 + 1)) / (f + 1.5 * (1 - 0.75 + 0.75 * dl / (length_sum / n)))
                    scores[id] = scores.get(id, 0.0) + added
    reached = [Scored(id, score) for id, score in scores.items() if score >= threshold]
    reached.sort(key=lambda scored: (-scored.score, scored.id))
    return Ranking(tuple(reached[:limit]), more=len(reached) > limit)
