"""Exact BM25 over facts: the formula and the best documents of a query. Pure: knows no store, reads nothing by itself.

A document is a number; facts about documents come from a `Facts`, which every store provides. Equal facts give equal
bits on every machine: contributions are added in the order of the query's terms, and idf is rounded correctly.

Most postings of a common term cannot matter, and they are not read (MaxScore): terms are taken rarest first, each adds
less than idf · (k1 + 1), and what cannot reach the bar any more is left out. The bar is the threshold or, once so many
documents are known, the score of the last wanted one. Partial sums only decide what is left out, with a slack far above
their rounding; the scores that rank are computed once more, in the canonical order.
"""

import functools
import heapq
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, islice
from typing import Final, NamedTuple, Protocol

K1: Final = 1.5
B: Final = 0.75

LENGTH_BITS: Final = 32
_LENGTH_MASK: Final = (1 << LENGTH_BITS) - 1
Posting = tuple[int, int]
"""One term in one document: the document, and frequency · 2^32 + length (how often the term occurs there, the
document's length in runs). Pairs are read a quarter faster than triples, and there are few different second halves."""

_SLACK: Final = 1 - 1e-9
"""Factor on every bar: nothing that could tie with it in canonical arithmetic is left out."""
_READ_WHOLE: Final = 100
"""Terms with fewer postings are read at once: leaving some out would cost more than reading them."""
_SATURATIONS_MAX: Final = 1 << 14
"""Different second halves of postings in one table, about 2 MiB."""
_KEPT_MAX: Final = 2000
"""Postings of one reading that are kept; of more, those of the few documents that remain are read again."""


class Totals(NamedTuple):
    """How many current memories there are, and the sum of their lengths in runs."""

    documents: int
    length_sum: int


class Cut(NamedTuple):
    """Postings that matter: those whose length is at most `slope` · frequency + `offset`."""

    slope: float
    offset: float


class Facts(Protocol):
    """What ranking asks of a store; all answers belong to one moment and cover current memories only.

    Postings come in any order.
    """

    def totals(self) -> Totals:
        """Return the number of documents and the sum of their lengths."""
        ...

    def document_frequencies(self, terms: Sequence[str]) -> Mapping[str, int]:
        """Return, for those of the given terms that occur, in how many documents each does."""
        ...

    def postings(self, term: str, cut: Cut | None = None) -> Iterable[Posting]:
        """Return every posting of a term, except that those outside `cut` may be left out."""
        ...

    def some_postings(self, term: str, count: int) -> Iterable[Posting]:
        """Return about `count` postings of a term, whichever are read fastest."""
        ...

    def postings_among(self, term: str, documents: Collection[int]) -> Iterable[Posting]:
        """Return the postings of a term in the given documents."""
        ...

    def ids(self, documents: Collection[int]) -> Mapping[int, str]:
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


_BITS: Final = 128
_ONE: Final = 1 << _BITS
_LN2: Final = 0xB17217F7D1CF79ABC9E3B39803F2F6AF
"""ln 2 · 2^128."""


@functools.lru_cache(maxsize=1024)
def inverse_document_frequency(documents: int, document_frequency: int) -> float:
    """Return ln(1 + (n - df + 0.5)/(df + 0.5)), correctly rounded (the C library's ln differs between platforms)."""
    return _ln(1 + (documents - document_frequency + 0.5) / (document_frequency + 0.5))


def _ln(x: float) -> float:
    """Return the natural logarithm of x > 1: the C library's and one step of Newton's method in 128-bit fixed point."""
    guess = _fixed(math.log(x))
    doublings, rest = divmod(guess, _LN2)
    rest >>= 8
    power = _ONE  # e^rest by its series, of which twelve terms are exact for a rest below 2^-8
    for n in range(12, 0, -1):
        power = _ONE + (power * rest >> _BITS) // n
    for _ in range(8):
        power = power * power >> _BITS
    power <<= doublings
    return math.ldexp(float(guess + ((_fixed(x) - power) << _BITS) // power), -_BITS)


def _fixed(x: float) -> int:
    numerator, denominator = x.as_integer_ratio()
    return (numerator << _BITS) // denominator


def contribution(idf: float, frequency: int, length: int, average_length: float) -> float:
    """Return what one term adds to the score of a document of the given length."""
    return idf * (frequency * (K1 + 1)) / (frequency + K1 * (1 - B + B * length / average_length))


def rank(facts: Facts, terms: Sequence[str], *, limit: int, threshold: float) -> Ranking:
    """Return the `limit` best documents that score at least `threshold`, by score descending, then id.

    `terms` are distinct; those that occur nowhere add nothing.
    """
    frequencies = facts.document_frequencies(terms)
    if not frequencies:
        return Ranking((), more=False)
    documents, length_sum = facts.totals()
    saturation = _saturation(length_sum / documents)
    words = [
        _Word(term, frequencies[term], inverse_document_frequency(documents, frequencies[term]), saturation)
        for term in terms
        if term in frequencies
    ]
    # One document more than wanted tells whether there are more.
    candidates = _Search(facts, words, wanted=limit + 1, threshold=threshold).run()
    for word in words:
        word.recollect(facts, candidates)
    scores = {document: _canonical_score(words, document) for document in candidates}
    reached = [document for document, score in scores.items() if score >= threshold]
    more = len(reached) > limit
    if more:  # only documents that could be among the best need their ids
        bar = _last_of_largest([scores[document] for document in reached], limit)
        reached = [document for document in reached if scores[document] >= bar]
    ids = facts.ids(reached)
    best = sorted([(-scores[document], ids[document]) for document in reached])[:limit]
    return Ranking(tuple([Scored(id, -score) for score, id in best]), more=more)


@functools.lru_cache(maxsize=4)
def _saturation(average_length: float) -> "_Saturation":
    """Return the table for an average length; until the next write it serves all queries."""
    return _Saturation(average_length)


class _Saturation(dict[int, float]):
    """What a term of idf 1 adds, but for rounding, by the second half of the posting; computed on first sight."""

    def __init__(self, average_length: float) -> None:
        super().__init__()
        self.average_length = average_length
        self._constant = K1 * (1 - B)
        self._per_length = K1 * B / average_length

    def __missing__(self, occurrence: int) -> float:
        if len(self) >= _SATURATIONS_MAX:
            self.clear()
        frequency, length = occurrence >> LENGTH_BITS, occurrence & _LENGTH_MASK
        added = self[occurrence] = frequency * (K1 + 1) / (frequency + self._constant + self._per_length * length)
        return added


class _Word:
    """One of the query's terms and what has been read of it.

    Attributes:
        bound: More than it adds to any document.
        known: The postings that have been read; after `recollect` those of its documents for certain.
    """

    def __init__(self, term: str, frequency: int, idf: float, saturation: _Saturation) -> None:
        self.term = term
        self.frequency = frequency
        self.known: dict[int, int] = {}
        self.bound = idf * (K1 + 1)
        self._is_all_kept = True
        self._idf = idf
        self._saturation = saturation

    def take(self, postings: Iterable[Posting]) -> dict[int, float]:
        """Keep postings in mind, unless they are many; return what they add to their documents, but for rounding."""
        taken = dict(postings)
        if len(taken) > _KEPT_MAX:
            self._is_all_kept = False
        elif self.known:
            self.known.update(taken)
        else:
            self.known = taken
        idf, saturation = self._idf, self._saturation
        return {document: idf * saturation[occurrence] for document, occurrence in taken.items()}

    def recollect(self, facts: Facts, documents: Collection[int]) -> None:
        """Read the postings of the given documents again, if they were too many to keep in mind."""
        if not self._is_all_kept:
            self.known = dict(facts.postings_among(self.term, documents))

    def canonical(self, document: int) -> float:
        """Return exactly what the term adds to a document whose posting, if there is one, has been read."""
        occurrence = self.known.get(document)
        if occurrence is None:
            return 0.0
        frequency, length = occurrence >> LENGTH_BITS, occurrence & _LENGTH_MASK
        return contribution(self._idf, frequency, length, self._saturation.average_length)

    def cut(self, least: float) -> Cut:
        """Return which postings add `least` (positive) or more: the formula, solved for the length."""
        average = self._saturation.average_length
        return Cut(slope=average / (K1 * B) * (self.bound / least - 1), offset=-average * (1 - B) / B)


class _Search:
    """Finds the documents that could be among the best: the candidates, with what the words so far add to them.

    A document that is left out scores less than the bar. It may come in again with another term, without what the
    terms before that add to it: its score is then still less than the bar, and so is what was computed of it.
    """

    def __init__(self, facts: Facts, words: Sequence[_Word], *, wanted: int, threshold: float) -> None:
        self._facts = facts
        self._words = sorted(words, key=lambda word: word.frequency)
        # The most that the words from each on can add, and how many postings they have.
        self._rest = [*accumulate((word.bound for word in reversed(self._words)), initial=0.0)][::-1]
        self._unread = [*accumulate((word.frequency for word in reversed(self._words)), initial=0)][::-1]
        self._wanted = wanted
        self._bar = threshold * _SLACK
        self._partial: dict[int, float] = {}
        self._whole: dict[int, float] = {}  # documents whose score is known already
        self._look_again: float = math.inf  # look ahead when so many postings are left

    def run(self) -> Collection[int]:
        """Return the documents that could be among the best `wanted`; what the words add to them is known then."""
        if self._is_worth_a_look_ahead(0, self._words[0].frequency):
            self._look_ahead(self._sample(self._words[0]), 1)
        for at, word in enumerate(self._words):
            if at and self._is_worth_a_look_ahead(at, self._unread[at]):
                self._look_ahead(self._partial, at)
            self._drop(at)
            self._add(self._read(word, self._bar - self._rest[at + 1]))
        self._raise_bar(self._partial.values())
        self._drop(len(self._words))
        return self._partial

    def _read(self, word: _Word, least: float) -> dict[int, float]:
        """Read what a word adds to the candidates, and to other documents where that is `least` or more."""
        if word.frequency < _READ_WHOLE or least <= 0 or 2 * len(self._partial) > word.frequency:
            return word.take(self._facts.postings(word.term))
        added = word.take(self._facts.postings(word.term, word.cut(least))) if least <= word.bound else {}
        if others := self._partial.keys() - added.keys():
            added |= word.take(self._facts.postings_among(word.term, others))
        return added

    def _sample(self, word: _Word) -> dict[int, float]:
        """Read as many of a word's postings as are likely to remain of the others, when these raise the bar."""
        return word.take(self._facts.some_postings(word.term, math.isqrt(self._wanted * word.frequency)))

    def _add(self, added: dict[int, float]) -> None:
        """Add a word's contributions (and use them up); documents not seen before become candidates."""
        partial = self._partial
        for document in partial.keys() & added.keys():
            added[document] += partial[document]
        partial.update(added)

    def _drop(self, at: int) -> None:
        """Drop the candidates that the words from `at` on cannot lift to the bar."""
        least = self._bar - self._rest[at]
        if least > 0:
            self._partial = {document: score for document, score in self._partial.items() if score >= least}

    def _is_worth_a_look_ahead(self, at: int, unread: int) -> bool:
        """Tell whether much more is left to read than a look ahead costs."""
        if unread > self._look_again:
            return False
        words = len(self._words) - at
        if self._bar > self._rest[at]:  # only the candidates will be looked up
            unread = min(unread, words * len(self._partial))
        return unread > _READ_WHOLE + 2 * words * 2 * self._wanted + len(self._partial) / 4

    def _look_ahead(self, partial: Mapping[int, float], at: int) -> None:
        """Raise the bar by the whole scores of the most promising candidates, if that could spare reading."""
        if not partial:
            return
        least = _last_of_largest(partial.values(), 2 * self._wanted)
        if least < self._rest[at]:
            return
        self._look_again = self._unread[at] / 2  # which bounds the cost for queries of very many words
        best = islice((document for document, score in partial.items() if score >= least), 4 * self._wanted)
        if fresh := {document: partial[document] for document in best if document not in self._whole}:
            for word in self._words[at:]:
                for document, added in word.take(self._facts.postings_among(word.term, fresh)).items():
                    fresh[document] += added
            self._whole |= fresh
            self._raise_bar(self._whole.values())

    def _raise_bar(self, scores: Collection[float]) -> None:
        """Raise the bar to the last wanted of some documents' scores."""
        if len(scores) >= self._wanted:
            self._bar = max(self._bar, _last_of_largest(scores, self._wanted) * _SLACK)


def _canonical_score(words: Iterable[_Word], document: int) -> float:
    """Return a document's score, added in the order of the words."""
    score = 0.0
    for word in words:
        score += word.canonical(document)
    return score


def _last_of_largest(scores: Collection[float], count: int) -> float:
    """Return the smallest of the `count` largest scores."""
    return (sorted(scores, reverse=True)[:count] if len(scores) < 200 else heapq.nlargest(count, scores))[-1]
