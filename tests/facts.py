"""Facts for tests: over documents in memory, and a counter around any facts."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from cavemem_mcp.bm25 import LENGTH_BITS, Cut, Facts, Posting, Totals
from cavemem_mcp.terms import DocumentTerms


class MemoryFacts:
    """Facts of documents (id → terms); a document's number is its place."""

    def __init__(self, documents: Mapping[str, DocumentTerms], *, honours_cuts: bool = True) -> None:
        self._ids = list(documents)
        self._lengths = [document.length for document in documents.values()]
        self._honours_cuts = honours_cuts
        self._frequencies: dict[str, dict[int, int]] = {}
        for number, document in enumerate(documents.values()):
            for term, frequency in document.frequencies.items():
                self._frequencies.setdefault(term, {})[number] = frequency

    def totals(self) -> Totals:
        return Totals(len(self._ids), sum(self._lengths))

    def document_frequencies(self, terms: Sequence[str]) -> Mapping[str, int]:
        return {term: len(self._frequencies[term]) for term in terms if term in self._frequencies}

    def postings(self, term: str, cut: Cut | None = None) -> Iterable[Posting]:
        return [
            (document, frequency << LENGTH_BITS | self._lengths[document])
            for document, frequency in self._frequencies[term].items()
            if cut is None or not self._honours_cuts or self._lengths[document] <= cut.slope * frequency + cut.offset
        ]

    def some_postings(self, term: str, count: int) -> Iterable[Posting]:
        return list(self.postings(term))[-count:]

    def postings_among(self, term: str, documents: Collection[int]) -> Iterable[Posting]:
        return [posting for posting in self.postings(term) if posting[0] in set(documents)]

    def ids(self, documents: Collection[int]) -> Mapping[int, str]:
        return {document: self._ids[document] for document in documents}


class CountingFacts:
    """Other facts, counting the postings and ids they hand out."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.postings_read = 0
        self.ids_read = 0

    def totals(self) -> Totals:
        return self._facts.totals()

    def document_frequencies(self, terms: Sequence[str]) -> Mapping[str, int]:
        return self._facts.document_frequencies(terms)

    def postings(self, term: str, cut: Cut | None = None) -> Iterable[Posting]:
        return self._counted(self._facts.postings(term, cut))

    def some_postings(self, term: str, count: int) -> Iterable[Posting]:
        return self._counted(self._facts.some_postings(term, count))

    def postings_among(self, term: str, documents: Collection[int]) -> Iterable[Posting]:
        return self._counted(self._facts.postings_among(term, documents))

    def ids(self, documents: Collection[int]) -> Mapping[int, str]:
        self.ids_read += len(documents)
        return self._facts.ids(documents)

    def _counted(self, postings: Iterable[Posting]) -> Iterable[Posting]:
        for posting in postings:
            self.postings_read += 1
            yield posting
