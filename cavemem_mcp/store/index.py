"""The recall index inside `mem.db`: kept true by every write, and read as facts. Judges nothing.

A memory is pending while its row has changed since it was indexed: triggers note that, whoever writes. Our own writes
settle theirs before they commit; what other programs left is settled by our next writes. Until then, readers leave
pending memories out of what the index says and take them from their text instead, so that facts are always exact.
"""

import json
import logging
import time
from array import array
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final, NamedTuple

import apsw

from cavemem_mcp.bm25 import LENGTH_BITS, Cut, Posting, Totals
from cavemem_mcp.model import handle_stem_of
from cavemem_mcp.store import schema, scrub
from cavemem_mcp.store.files import Connection
from cavemem_mcp.terms import document_terms

ROWS_SETTLED_AT_ONCE: Final = 32
"""Rows of others that are settled before the clock is looked at again."""
SETTLE_SECONDS_MAX: Final = 0.05
"""About how long one write settles rows of others, so that those who wait for the lock need not wait for these."""

_PENDING: Final = """
SELECT p.rowid, d.doc, d.dl, m.id IS NOT NULL FROM idx_pending p
LEFT JOIN idx_docs d ON d.id = p.id LEFT JOIN memories m ON m.id = p.id AND m.valid_until IS NULL
"""
_PENDING_TEXT: Final = """
SELECT p.rowid, CAST(m.text AS BLOB) FROM idx_pending p CROSS JOIN memories m ON m.id = p.id AND m.valid_until IS NULL
"""
_SETTLED: Final = """
SELECT m.valid_until IS NULL, d.doc, d.dl, CAST(m.text AS BLOB) FROM memories m LEFT JOIN idx_docs d ON d.id = m.id
WHERE m.id = ? AND NOT EXISTS (SELECT 1 FROM idx_pending p WHERE p.id = m.id)
"""
_GONE: Final = """
SELECT CAST(p.id AS BLOB) FROM idx_pending p
WHERE p.rowid = ? AND NOT EXISTS (SELECT 1 FROM memories m WHERE m.id = p.id)
"""
# A damaged posting may hold NULL, and then counts for nothing.
_POSTINGS: Final = "SELECT doc, coalesce(f << 32 | dl, 0) FROM idx_postings WHERE tid = ?"
# The order of the joins is ours: with few postings a term on average, SQLite might scan all of the term's.
_POSTINGS_AMONG: Final = """
SELECT doc, coalesce(f << 32 | dl, 0) FROM carray(?) AS wanted CROSS JOIN idx_postings ON tid = ? AND doc = wanted.value
"""
_CURRENT_IDS: Final = """
SELECT d.doc, CAST(d.id AS BLOB) FROM carray(?) AS wanted CROSS JOIN idx_docs d ON d.doc = wanted.value
CROSS JOIN memories m ON m.id = d.id AND m.valid_until IS NULL
"""

logger = logging.getLogger(__name__)


class ContradictionError(Exception):
    """The index contradicts itself or the memories."""


def decoded(stored: bytes | None) -> str:
    """Return what is stored in a text column, as bytes, as a string; other programs may have put anything there."""
    return "" if stored is None else stored.decode("utf-8", "replace")


class IndexWriter:
    """Keeps the index true inside one write transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def withdraw(self, id: str) -> None:
        """Take a memory out of the index before its row changes, while its text tells which entries it has."""
        row = self._connection.execute(_SETTLED, (id,)).get
        if row is not None:
            is_current, doc, length, text = one(row)
            with self._rebuilding():
                if is_current != (doc is not None):
                    raise ContradictionError("a memory is missing or out of date")
                if is_current:
                    self._remove_by_text(doc, length, decoded(text))

    def settle(self, id: str) -> None:
        """Index a memory whose row this transaction has changed."""
        with self._rebuilding():
            self._settle("WHERE p.id = ?", id)

    def settle_others(self) -> None:
        """Index memories whose rows other programs have changed, for a moment."""
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        with self._rebuilding():
            while self._settle("LIMIT ?", ROWS_SETTLED_AT_ONCE, are_others=True) and time.monotonic() < deadline:
                pass

    def pending_count(self) -> int:
        """Return how many memories wait to be indexed."""
        return self._connection.execute("SELECT count(*) FROM idx_pending").get

    @contextmanager
    def _rebuilding(self) -> Generator[None]:
        """Let every memory become pending when the index turns out to contradict them."""
        try:
            yield
        except (ContradictionError, apsw.ConstraintError) as error:
            rebuild(self._connection, error)

    def _settle(self, which: str, value: str | int, *, are_others: bool = False) -> int:
        rows = list(self._connection.execute(_PENDING + which, (value,)))
        if stale := [doc for _, doc, _, _ in rows if doc is not None]:
            self._remove_by_scan(stale)
        for rowid, _, _, is_current in rows:
            if is_current:
                self._add(rowid)
            elif are_others:
                self._note_deletion(rowid)
            self._connection.execute("DELETE FROM idx_pending WHERE rowid = ?", (rowid,))
        return len(rows)

    def _note_deletion(self, rowid: int) -> None:
        """Note the erasure of what a memory that another program deleted may have left in the recovery store."""
        id = self._connection.execute(_GONE, (rowid,)).get
        stem = None if id is None else handle_stem_of(decoded(id))
        if stem is not None:
            scrub.note(self._connection, (stem,))

    def _add(self, rowid: int) -> None:
        connection = self._connection
        _, text = one(connection.execute(_PENDING_TEXT + "WHERE p.rowid = ?", (rowid,)).get)
        frequencies, length = document_terms(decoded(text))
        doc = connection.execute(
            "INSERT INTO idx_docs(id, dl) SELECT id, ? FROM idx_pending WHERE rowid = ? RETURNING doc", (length, rowid)
        ).get
        terms = _as_json(frequencies)
        connection.execute(
            "INSERT INTO idx_terms(term, df) SELECT key, 1 FROM json_each(?) WHERE true"
            " ON CONFLICT(term) DO UPDATE SET df = df + 1",
            (terms,),
        )
        connection.execute(
            "INSERT INTO idx_postings(tid, doc, f, dl) SELECT t.tid, ?, j.value, ?"
            " FROM json_each(?) j CROSS JOIN idx_terms t ON t.term = j.key",
            (doc, length, terms),
        )
        connection.execute("UPDATE idx_totals SET n = n + 1, dl_sum = dl_sum + ?", (length,))
        if connection.changes() != 1:
            raise ContradictionError("there is not one row of totals")

    def _remove_by_text(self, doc: int, length: int, text: str) -> None:
        """Remove a document that is not pending: its entries are exactly those of its text."""
        connection = self._connection
        frequencies, found_length = document_terms(text)
        terms = _as_json(frequencies)
        connection.execute(
            "DELETE FROM idx_postings WHERE doc = ? AND tid IN"
            " (SELECT t.tid FROM json_each(?) j CROSS JOIN idx_terms t ON t.term = j.key)",
            (doc, terms),
        )
        if found_length != length or connection.changes() != len(frequencies):
            raise ContradictionError("a memory's entries are not those of its text")
        connection.execute("UPDATE idx_terms SET df = df - 1 WHERE term IN (SELECT key FROM json_each(?))", (terms,))
        # The words of forgotten memories must not stay.
        connection.execute("DELETE FROM idx_terms WHERE df < 1 AND term IN (SELECT key FROM json_each(?))", (terms,))
        self._remove_documents([doc])

    def _remove_by_scan(self, docs: Sequence[int]) -> None:
        """Remove documents whose texts are gone or changed: only reading all postings tells which entries they have."""
        connection = self._connection
        removed = Counter(
            tid
            for (tid,) in connection.execute(
                "DELETE FROM idx_postings WHERE doc IN (SELECT value FROM json_each(?)) RETURNING tid",
                (json.dumps(docs),),
            )
        )
        connection.executemany(
            "UPDATE idx_terms SET df = df - ? WHERE tid = ?", [(count, tid) for tid, count in removed.items()]
        )
        connection.executemany("DELETE FROM idx_terms WHERE tid = ? AND df < 1", [(tid,) for tid in removed])
        self._remove_documents(docs)

    def _remove_documents(self, docs: Sequence[int]) -> None:
        for doc in docs:
            length = self._connection.execute("DELETE FROM idx_docs WHERE doc = ? RETURNING dl", (doc,)).get
            totals = self._connection.execute(
                "UPDATE idx_totals SET n = n - 1, dl_sum = dl_sum - ? RETURNING n, dl_sum", (length,)
            ).get
            if min(_integers(totals)) < 0:
                raise ContradictionError("a total is negative")


def one(found: Any) -> Any:
    """Return what was found under a unique key if it is one row; more or none show that the file is damaged."""
    if found is None or isinstance(found, list):
        raise apsw.exception_for(apsw.SQLITE_CORRUPT)
    return found


def _integers(found: Any) -> tuple[int, int]:
    """Return the two integers that the index has somewhere; anything else shows that it cannot be trusted."""
    match found:
        case (int() as first, int() as second):
            return first, second
        case _:
            raise ContradictionError("a number is missing")


def _as_json(frequencies: Mapping[str, int]) -> str:
    """Return the terms of a text as one bound value, so that one statement indexes them all."""
    return json.dumps(frequencies, ensure_ascii=False)


def rebuild(connection: Connection, error: Exception) -> None:
    """Start the index anew, inside the caller's transaction, because `error` showed that it cannot be trusted."""
    logger.warning("%s: the recall index contradicts the memories (%s); it is rebuilt", connection.filename, error)
    schema.rebuild_index(connection)


class _Pending(NamedTuple):
    """What a snapshot corrects in the index.

    Attributes:
        stale: Documents that the index is wrong about, with the lengths it has for them.
        has_texts: Whether there are current memories to be taken from their texts, under negative numbers.
    """

    stale: Mapping[int, int]
    has_texts: bool


class IndexFacts:
    """`bm25.Facts` of one read transaction. Raises `ContradictionError` where the index is seen to be wrong."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tids: dict[str, int | None] = {}
        self._pending_postings: dict[str, list[Posting]] = {}
        self._pending_lengths: dict[int, int] = {}

    def totals(self) -> Totals:
        return self._totals

    def document_frequencies(self, terms: Sequence[str]) -> Mapping[str, int]:
        frequencies: dict[str, int] = {}
        for term in terms:
            found = self._connection.execute("SELECT tid, df FROM idx_terms WHERE term = ?", (term,)).get
            self._tids[term], frequencies[term] = (None, 0) if found is None else _integers(found)
        if not self._is_settled:
            self._correct(frequencies)
        counts = frequencies.values()
        if frequencies and not 0 <= min(counts) <= max(counts) <= min(self._totals):
            raise ContradictionError("a document frequency is out of range")
        return {term: frequency for term, frequency in frequencies.items() if frequency}

    def postings(self, term: str, cut: Cut | None = None) -> Iterable[Posting]:
        if cut is None:
            indexed = self._connection.execute(_POSTINGS, (self._tid(term),))
        else:
            indexed = self._connection.execute(_POSTINGS + " AND dl <= ? * f + ?", (self._tid(term), *cut))
        return self._corrected(indexed, self._pending_postings.get(term, ()))

    def some_postings(self, term: str, count: int) -> Iterable[Posting]:
        return self._corrected(self._connection.execute(_POSTINGS + " LIMIT ?", (self._tid(term), count)), ())

    def postings_among(self, term: str, documents: Collection[int]) -> Iterable[Posting]:
        if not documents:
            return ()
        indexed = self._connection.execute(_POSTINGS_AMONG, (_array(documents), self._tid(term)))
        pending = [posting for posting in self._pending_postings.get(term, ()) if posting[0] in documents]
        return self._corrected(indexed, pending)

    def ids(self, documents: Collection[int]) -> Mapping[int, str]:
        if not documents:
            return {}
        ids = {document: decoded(id) for document, id in self._connection.execute(_CURRENT_IDS, (_array(documents),))}
        for document in documents:
            if document < 0:
                ids[document] = self._pending_id(document)
        if len(ids) < len(documents):
            raise ContradictionError("a memory is missing")
        return ids

    @cached_property
    def _totals(self) -> Totals:
        documents, length_sum = _integers(self._connection.execute("SELECT n, dl_sum FROM idx_totals").get)
        stale, has_texts = self._pending
        lengths = self._pending_lengths
        if has_texts and not lengths:
            self._correct({})
        totals = Totals(documents - len(stale) + len(lengths), length_sum - sum(stale.values()) + sum(lengths.values()))
        if min(totals) < 0:
            raise ContradictionError("a total is negative")
        return totals

    @cached_property
    def _is_settled(self) -> bool:
        return not any(self._pending)

    @cached_property
    def _pending(self) -> _Pending:
        stale: dict[int, int] = {}
        has_texts = False
        for _, doc, length, is_current in self._connection.execute(_PENDING):
            if doc is not None:
                stale[doc], _ = _integers((length, doc))
            has_texts = has_texts or bool(is_current)
        return _Pending(stale, has_texts)

    def _correct(self, frequencies: dict[str, int]) -> None:
        """Count pending memories as their texts are, not as the index says.

        Only the postings of these terms are kept: all terms of very many pending memories would not fit into memory.
        """
        stale, has_texts = self._pending
        for term in frequencies:
            self._pending_postings[term] = []
            if stale and frequencies[term]:
                frequencies[term] -= self._stale_count(term, frequencies[term], stale)
        if not has_texts:
            return
        for rowid, text in self._connection.execute(_PENDING_TEXT):
            occurring, length = document_terms(decoded(text))
            self._pending_lengths[-rowid] = length
            for term in occurring.keys() & frequencies.keys():
                frequencies[term] += 1
                self._pending_postings[term].append((-rowid, occurring[term] << LENGTH_BITS | length))

    def _stale_count(self, term: str, frequency: int, stale: Mapping[int, int]) -> int:
        """Count a term's postings of stale documents, by the shorter way."""
        if frequency <= len(stale):
            postings = self._connection.execute(_POSTINGS, (self._tids[term],))
            return sum(document in stale for document, _ in postings)
        return len(list(self._connection.execute(_POSTINGS_AMONG, (_array(stale), self._tids[term]))))

    def _tid(self, term: str) -> int | None:
        if term not in self._tids:
            self.document_frequencies((term,))
        return self._tids[term]

    def _corrected(self, indexed: Iterable[Posting], pending: Sequence[Posting]) -> Iterable[Posting]:
        """Leave out what the index is wrong about, and add postings of pending memories."""
        if self._is_settled:
            return indexed
        stale = self._pending.stale
        return [posting for posting in indexed if posting[0] not in stale] + list(pending)

    def _pending_id(self, document: int) -> str:
        return decoded(
            self._connection.execute("SELECT CAST(id AS BLOB) FROM idx_pending WHERE rowid = ?", (-document,)).get
        )


def _array(documents: Collection[int]) -> Any:
    """Return numbers as one value, for `carray`; sorted, because look-ups in order meet the same pages."""
    untyped: Any = apsw  # its own types need Python 3.12
    return untyped.carray(array("q", sorted(documents)))
