"""Look at the files of a store past the code that wrote them: what is in them, and whether it agrees."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import apsw

from cavemem_mcp.terms import document_terms
from tests.faults.reference import Version

PIECE_BYTES = 16
_BLOCK_BYTES = 8  # every piece holds a whole block that begins at a multiple of its size


def stored_versions(connection: apsw.Connection) -> dict[str, Version]:
    rows = connection.execute("SELECT id, text, supersedes, superseded_by, valid_until IS NULL FROM memories")
    return {
        id: Version(id=id, text=text, supersedes=earlier, superseded_by=later, is_current=bool(is_current))
        for id, text, earlier, later, is_current in rows
    }


def check_files(folder: Path) -> dict[str, Version]:
    """Fail unless chains are whole and the index is what a fresh one would be; return the versions there are."""
    with closing(apsw.Connection(str(folder / "mem.db"), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        connection.set_busy_timeout(5000)
        connection.execute("BEGIN")
        versions = stored_versions(connection)
        _check_chains(versions)
        _check_index(connection, versions)
    return versions


def check_integrity(folder: Path) -> None:
    for path in folder.glob("*.db"):
        with closing(apsw.Connection(str(path))) as connection:
            assert connection.pragma("integrity_check") == "ok"


def _check_chains(versions: dict[str, Version]) -> None:
    for version in versions.values():
        assert not (version.is_current and version.superseded_by), f"{version.id} is current and superseded"
        if version.superseded_by is not None:
            assert versions[version.superseded_by].supersedes == version.id
        if version.supersedes is not None:
            assert versions[version.supersedes].superseded_by == version.id
        seen: set[str] = set()
        earlier: Version | None = version
        while earlier is not None:
            assert earlier.id not in seen, f"{version.id} is in a cycle"
            seen.add(earlier.id)
            earlier = versions[earlier.supersedes] if earlier.supersedes else None


def _check_index(connection: apsw.Connection, versions: dict[str, Version]) -> None:
    pending = {id for (id,) in connection.execute("SELECT id FROM idx_pending")}
    documents = {doc: (id, dl) for doc, id, dl in connection.execute("SELECT doc, id, dl FROM idx_docs")}
    terms = {tid: (term, df) for tid, term, df in connection.execute("SELECT tid, term, df FROM idx_terms")}
    postings = list(connection.execute("SELECT tid, doc, f, dl FROM idx_postings"))

    # It agrees with itself, also about memories that wait to be indexed.
    lengths = [dl for _, dl in documents.values()]
    assert list(connection.execute("SELECT n, dl_sum FROM idx_totals")) == [(len(lengths), sum(lengths))]
    assert Counter(tid for tid, *_ in postings) == {tid: df for tid, (_, df) in terms.items()}

    # And about all others with their texts.
    found: dict[str, tuple[dict[str, int], int]]
    found = {id: ({}, dl) for id, dl in documents.values() if id not in pending}
    for tid, doc, f, dl in postings:
        id, length = documents[doc]
        assert dl == length
        if id not in pending:
            found[id][0][terms[tid][0]] = f
    current = {id: version.text for id, version in versions.items() if version.is_current and id not in pending}
    assert found == {id: tuple(document_terms(text)) for id, text in current.items()}


def pieces_in_files(folder: Path, data: Iterable[bytes]) -> dict[str, bytes]:
    """Return a piece of 16 bytes for each file of the folder that shares one with any of the data."""
    data = list(data)
    blocks = {
        int.from_bytes(one[at : at + _BLOCK_BYTES], sys.byteorder)
        for one in data
        for at in range(len(one) - _BLOCK_BYTES + 1)
    }
    found: dict[str, bytes] = {}
    for path in folder.iterdir():
        for piece in _pieces_with(path.read_bytes(), blocks):
            if any(piece in one for one in data):
                found[path.name] = piece
                break
    return found


def _pieces_with(content: bytes, blocks: set[int]) -> Iterator[bytes]:
    """Yield the pieces of a file that hold one of the blocks, where the file's own blocks begin."""
    view = memoryview(content)[: len(content) // _BLOCK_BYTES * _BLOCK_BYTES].cast("Q")
    shared = blocks.intersection(view)
    if not shared:
        return
    for number, block in enumerate(view):
        if block in shared:
            at = number * _BLOCK_BYTES
            for start in range(max(at - PIECE_BYTES + _BLOCK_BYTES, 0), at + 1):
                if start + PIECE_BYTES <= len(content):
                    yield content[start : start + PIECE_BYTES]
