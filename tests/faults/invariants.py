"""What must be true of a store's files at any time, found by reading them as another program would."""

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import apsw

from cavemem_mcp.model import memory_id_of_handle, recovery_handle
from cavemem_mcp.store.files import Connection
from cavemem_mcp.terms import document_terms

Rows = list[tuple[Any, ...]]

_INDEX_TABLES = 6


def connect(path: Path) -> Connection:
    """Open a database on a connection of its own, past every VFS of the tests."""
    connection = cast("Connection", apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs="unix"))
    connection.set_busy_timeout(5000)
    return connection


def memories(folder: Path) -> Rows:
    """Return the memories with all their columns; nothing while there is no table of them."""
    path = folder / "mem.db"
    if not path.exists():
        return []
    with closing(connect(path)) as connection:
        columns = [name for (name,) in connection.execute("SELECT name FROM pragma_table_info('memories')")]
        rows = list(connection.execute("SELECT * FROM memories ORDER BY id")) if columns else []
        return [tuple(zip(columns, row, strict=True)) for row in rows]


def check(folder: Path) -> None:
    """Assert that both files are whole, the index is a fresh one's, chains hold, and nothing is left behind."""
    with closing(connect(folder / "mem.db")) as connection:
        connection.execute("BEGIN")
        assert connection.pragma("integrity_check") == "ok"
        tables = "name GLOB 'idx_*' AND type = 'table'"
        if connection.execute(f"SELECT count(*) FROM sqlite_schema WHERE {tables}").get != _INDEX_TABLES:
            return  # not opened by us yet
        _check_index(connection)
        _check_chains(connection)
        noted = {handle for (handle,) in connection.execute("SELECT handle FROM erasures")}
        wanted = {recovery_handle(text) for (text,) in connection.execute("SELECT text FROM memories")}
        pending = {id for (id,) in connection.execute("SELECT id FROM idx_pending")}
    originals = folder / "ccr.db"
    if originals.exists():
        with closing(connect(originals)) as connection:
            assert connection.pragma("integrity_check") == "ok"
            if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'originals'").get:
                kept = {handle for (handle,) in connection.execute("SELECT handle FROM originals")}
                begun = tuple(noted)  # where only a memory's id was known, the half of a handle that follows from it
                left = {handle for handle in kept - wanted if not handle.startswith(begun)}
                left = {handle for handle in left if memory_id_of_handle(handle) not in pending}
                assert not left, "an original outlived its memory and no note says so"


def _check_index(connection: Connection) -> None:
    pending = {id for (id,) in connection.execute("SELECT id FROM idx_pending")}
    current = dict(connection.execute("SELECT id, text FROM memories WHERE valid_until IS NULL"))
    documents = {id: (doc, length) for doc, id, length in connection.execute("SELECT doc, id, dl FROM idx_docs")}
    assert current.keys() - pending == documents.keys() - pending

    found: dict[int, dict[str, tuple[int, int]]] = {doc: {} for doc, _ in documents.values()}
    postings = "SELECT p.doc, t.term, p.f, p.dl FROM idx_postings p LEFT JOIN idx_terms t ON t.tid = p.tid"
    for doc, term, frequency, length in connection.execute(postings):
        found[doc][term] = frequency, length
    for id in current.keys() - pending:
        frequencies, length = document_terms(current[id])
        doc, stored_length = documents[id]
        assert stored_length == length
        assert found[doc] == {term: (frequency, length) for term, frequency in frequencies.items()}

    counted = Counter(term for of_document in found.values() for term in of_document)
    assert dict(connection.execute("SELECT term, df FROM idx_terms")) == dict(counted)
    totals = len(documents), sum(length for _, length in documents.values())
    assert list(connection.execute("SELECT n, dl_sum FROM idx_totals")) == [totals]


def _check_chains(connection: Connection) -> None:
    rows = connection.execute("SELECT id, supersedes, superseded_by, valid_until FROM memories")
    links = {id: (earlier or None, later or None, until) for id, earlier, later, until in rows}
    for id, (earlier, later, until) in links.items():
        assert earlier is None or links[earlier][1] == id, "a version and the one before it do not point at each other"
        assert later is None or links[later][0] == id, "a version and the one after it do not point at each other"
        assert later is None or until is not None, "a superseded version is current"
        seen = {id}
        while (later := links[id][1]) is not None:
            assert later not in seen, "a chain is cyclic"
            seen.add(later)
            id = later
