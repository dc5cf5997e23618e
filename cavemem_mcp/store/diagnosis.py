"""What is wrong inside `mem.db`: its pages, its memories, its index against a fresh one. Says so without their words.

Looking changes nothing; `rebuild_index` changes only what follows from the memories.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw

from cavemem_mcp import terms
from cavemem_mcp.errors import StoreError
from cavemem_mcp.model import handle_of, memory_id, memory_id_of_handle
from cavemem_mcp.store import files, schema
from cavemem_mcp.store.files import Connection
from cavemem_mcp.store.index import IndexWriter, decoded
from cavemem_mcp.store.reading import ChangedError, observing

FAULTS_MAX: Final = 3
"""Faults of the file's pages that are looked for: one is enough to restore a backup."""
_WRITE_VERSION_AT: Final = 18
_WRITE_VERSIONS: Final = (1, 2)
"""SQLite writes to no file whose header has another one."""
_ID_LENGTH: Final = len(memory_id(""))

_MISSING: Final = """
SELECT count(*) FROM memories m NOT INDEXED WHERE valid_until IS NULL AND typeof(id) = 'text'
  AND NOT EXISTS (SELECT 1 FROM idx_docs d WHERE d.id = m.id)
  AND NOT EXISTS (SELECT 1 FROM idx_pending p WHERE p.id = m.id)
"""
_SUPERFLUOUS: Final = """
SELECT count(*) FROM idx_docs d WHERE NOT EXISTS (SELECT 1 FROM memories m WHERE m.id = d.id AND m.valid_until IS NULL)
  AND NOT EXISTS (SELECT 1 FROM idx_pending p WHERE p.id = d.id)
"""
_INDEXED: Final = """
SELECT d.doc, d.dl, CAST(m.text AS BLOB) FROM idx_docs d CROSS JOIN memories m ON m.id = d.id AND m.valid_until IS NULL
WHERE NOT EXISTS (SELECT 1 FROM idx_pending p WHERE p.id = d.id)
"""
_STALE: Final = "SELECT d.doc FROM idx_pending p CROSS JOIN idx_docs d ON d.id = p.id"
_IDS_AND_TEXTS: Final = """
SELECT CAST(id AS BLOB), CAST(text AS BLOB) FROM memories NOT INDEXED WHERE typeof(id) = 'text'
"""


class IndexDiagnosis(NamedTuple):
    """The index beside the memories.

    Attributes:
        memories: Current memories in it.
        pending: Memories that other programs wrote and that wait for their turn.
        differences: How it differs from a fresh one, in words; empty when it is right.
    """

    memories: int
    pending: int
    differences: tuple[str, ...]


def sqlite_version() -> str:
    """Return the version of SQLite that reads and writes here."""
    return apsw.sqlite_lib_version()


def damage(path: Path, connection: Connection) -> list[str]:
    """Return what of a file no rebuilding repairs, as SQLite says it; nothing of it quotes a value."""
    faults = ["the file ends inside a page"] if files.is_cut(connection) else []
    if _write_version(path) not in _WRITE_VERSIONS:
        faults.append("the header forbids writing")
    return faults + _said(connection, "quick_check")


def disorder(connection: Connection) -> list[str]:
    """Return what is wrong beyond that: indexes that are not those of their tables."""
    return _said(connection, "integrity_check")


def _said(connection: Connection, check: str) -> list[str]:
    return [row for (row,) in connection.execute(f"PRAGMA {check}({FAULTS_MAX})") if row != "ok"]


def _write_version(path: Path) -> int:
    # Through SQLite's own file layer: closing any other descriptor of the file would drop the process's POSIX locks.
    untyped: Any = apsw.VFSFile("", str(path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
    try:
        return untyped.xRead(1, _WRITE_VERSION_AT)[0]
    finally:
        untyped.xClose()


def altered(connection: Connection) -> list[str]:
    """Return the ids of memories whose text is not the one that the id was made of."""
    found: list[str] = []
    for stored_id, stored_text in connection.execute(_IDS_AND_TEXTS):
        id = decoded(stored_id)
        is_ours = len(id) == _ID_LENGTH and id.startswith("mem_")  # other programs may have ids of other kinds
        if is_ours and memory_id_of_handle(handle_of(stored_text or b"")) != id:
            found.append(id)
    return found


def diagnose_index(connection: Connection) -> IndexDiagnosis:
    """Compare the index with a fresh one."""
    if altered := files.altered(connection, schema.OBJECTS):
        return IndexDiagnosis(0, 0, (f"{', '.join(altered)} missing or altered",))
    memories, pending = (
        connection.execute(f"SELECT count(*) FROM {table}").get  # noqa: S608 names of ours
        for table in ("idx_docs", "idx_pending")
    )
    return IndexDiagnosis(memories, pending, tuple(_differences(connection)))


def _differences(connection: Connection) -> Iterator[str]:
    if not schema.has_our_terms(connection):
        yield "it was made by other rules for words"
        return
    if disorder(connection):
        yield "columns are not indexed as they are"
    for query, what in ((_MISSING, "current memories missing"), (_SUPERFLUOUS, "memories too many")):
        if count := connection.execute(query).get:
            yield f"{count} {what}"
    totals = connection.execute("SELECT n, dl_sum FROM idx_totals").get
    if totals != connection.execute("SELECT count(*), coalesce(sum(dl), 0) FROM idx_docs").get:
        yield "its totals are not the sums of its memories"
    wrong_lengths, fresh = _fresh(connection)
    if wrong_lengths:
        yield f"{wrong_lengths} memories with another length"
    for what, count in _term_differences(connection, fresh).items():
        yield f"{count} {what}"


def _fresh(connection: Connection) -> tuple[int, dict[str, int]]:
    """Return how many lengths are wrong, and for each term of what is indexed the sum that its postings must have.

    The sum of what identifies each posting, instead of all postings, fits into memory.
    """
    wrong_lengths = 0
    sums: dict[str, int] = {}
    for doc, stored_length, text in connection.execute(_INDEXED):
        frequencies, length = terms.document_terms(decoded(text))
        wrong_lengths += length != stored_length
        for term, frequency in frequencies.items():
            sums[term] = sums.get(term, 0) + hash((doc, frequency, stored_length))
    return wrong_lengths, sums


def _term_differences(connection: Connection, fresh: Mapping[str, int]) -> Counter[str]:
    stale = {doc for (doc,) in connection.execute(_STALE)}
    found = Counter[str]()
    stored: dict[int, tuple[int, int]] = {}
    postings = connection.execute("SELECT tid, doc, f, dl FROM idx_postings ORDER BY tid")
    for tid, of_term in groupby(postings, key=itemgetter(0)):
        count = total = 0
        for _, doc, frequency, length in of_term:
            count += 1
            if doc not in stale:
                total += hash((doc, frequency, length))
        stored[tid] = count, total
    known = 0
    for tid, term, df in connection.execute("SELECT tid, CAST(term AS BLOB), df FROM idx_terms"):
        count, total = stored.pop(tid, (0, 0))
        expected = fresh.get(decoded(term))
        known += expected is not None
        found["words counted wrongly"] += df != count
        found["words of no memory"] += count == 0
        found["words with wrong entries"] += (expected or 0) != total
    found["words missing"] = len(fresh) - known
    found["words without a name"] = len(stored)
    return +found


def rebuild_index(path: Path) -> None:
    """Make everything anew that follows from the memories: the index, and the triggers that keep it true.

    Recall is exact meanwhile, and also if this is interrupted: what is not indexed yet is taken from its text.

    Raises:
        StoreError: The file is missing, damaged, of another layout, or another program holds it; nothing has changed.
    """
    with files.store_errors(path):
        try:
            with observing(path) as connection:
                _refuse_to_rebuild(path, connection)
        except ChangedError as error:
            raise StoreError(f"{path}: {error}; repeat") from error
        with closing(files.connect(path)) as connection:
            with files.transaction(connection, files.busy_deadline()):
                schema.recreate_derived(connection)
            left = 1
            while left:
                with files.transaction(connection, files.busy_deadline()):
                    index = IndexWriter(connection)
                    index.settle_others()
                    left = index.pending_count()


def _refuse_to_rebuild(path: Path, connection: Connection) -> None:
    files.refuse_foreign(connection, schema.LAYOUT)
    if connection.pragma("user_version") != schema.LAYOUT:
        raise StoreError(f"{path} has an older layout; use it once, which brings it up to date and indexes it")
    if damage(path, connection):
        raise StoreError(f"{path}: the file itself is damaged, not only its index; restore a backup")
