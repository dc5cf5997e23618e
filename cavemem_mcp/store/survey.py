"""Look at all memories of one read transaction, count them, and copy the whole file. Judges nothing."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import apsw

from cavemem_mcp.model import Largest, Statistics
from cavemem_mcp.store import files
from cavemem_mcp.store.files import Connection
from cavemem_mcp.store.index import decoded
from cavemem_mcp.store.reading import reading

# Only ids that are text are memories. The index on created_at gives their order without sorting all of them.
_NEWEST_IDS: Final = """
SELECT CAST(id AS BLOB) FROM memories WHERE typeof(id) = 'text' ORDER BY created_at DESC, id
"""
_NEWEST_IDS_WITH_PREFIX: Final = """
SELECT CAST(id AS BLOB) FROM memories WHERE id >= ?1 AND id < ?1 || char(0x10ffff) ORDER BY +created_at DESC, id
"""
_COUNTS: Final = """
SELECT count(*), coalesce(sum(valid_until IS NULL), 0), coalesce(sum(coalesce(supersedes, '') = ''), 0),
  coalesce(sum(octet_length(text)), 0), CAST(min(created_at) AS BLOB), CAST(max(created_at) AS BLOB)
FROM memories WHERE typeof(id) = 'text'
"""
_LARGEST: Final = """
SELECT CAST(id AS BLOB), octet_length(text) FROM memories WHERE typeof(id) = 'text' ORDER BY 2 DESC, id LIMIT 1
"""


def newest_ids(connection: Connection, prefix: str) -> Iterator[str]:
    """Yield the ids that begin with a prefix, newest memory first."""
    found = connection.execute(_NEWEST_IDS_WITH_PREFIX, (prefix,)) if prefix else connection.execute(_NEWEST_IDS)
    return (decoded(id) for (id,) in found)


def statistics(connection: Connection) -> Statistics:
    """Count all memories."""
    count, current, chains, text_bytes, oldest, newest = connection.execute(_COUNTS).get
    largest = connection.execute(_LARGEST).get
    return Statistics(
        current=current,
        expired=count - current,
        chains=chains,
        text_bytes=text_bytes,
        oldest=decoded(oldest) or None,
        newest=decoded(newest) or None,
        largest=None if largest is None else Largest(id=decoded(largest[0]), bytes=largest[1]),
    )


def copy(path: Path, target: Path) -> None:
    """Copy a database, as it is at one moment, to a new private file; its readers and writers go on meanwhile."""
    files.make_private_file(target)
    with files.store_errors(path), reading(path) as source, files.store_errors(target):
        untyped: Any = source  # what is copied has one type in apsw
        with closing(apsw.Connection(str(target), flags=apsw.SQLITE_OPEN_READWRITE)) as copied:
            with copied.backup("main", untyped, "main") as backup:
                backup.step(-1)
            copied.pragma("journal_mode", "delete")  # one file, whole without a log beside it
