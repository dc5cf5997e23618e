"""The layout of `mem.db` and how older stores get there. Knows tables; runs no operation.

`memories` is shared with other programs. What begins with `idx_` is the index of its current rows, and
`erasures` holds the handles of deletions that are not finished.
"""

import logging
from typing import Final

from cavemem_mcp import terms
from cavemem_mcp.errors import StoreError
from cavemem_mcp.store import files, scrub
from cavemem_mcp.store.files import Connection

LAYOUT: Final = 1
"""`PRAGMA user_version` of this layout; stores without an index have 0."""

_MEMORIES: Final = """
CREATE TABLE IF NOT EXISTS memories (
  id TEXT PRIMARY KEY, text TEXT NOT NULL, created_at TEXT NOT NULL, valid_from TEXT NOT NULL,
  valid_until TEXT, supersedes TEXT, superseded_by TEXT)
"""
_COLUMNS_REQUIRED: Final = ("id", "text", "created_at")
_COLUMNS_ADDED: Final = {
    "valid_from": "TEXT NOT NULL DEFAULT ''",
    "valid_until": "TEXT",
    "supersedes": "TEXT",
    "superseded_by": "TEXT",
}
"""Columns that an older store may lack."""

# Only ids that are text are memories. A writer's own conflict clause would override one of ours: hence NOT EXISTS.
_MAKE_PENDING: Final = """
INSERT INTO idx_pending(id) SELECT {row}.id
WHERE typeof({row}.id) = 'text' AND NOT EXISTS (SELECT 1 FROM idx_pending WHERE id = {row}.id);
"""
OBJECTS: Final = {
    "idx_memories_valid_until": "CREATE INDEX idx_memories_valid_until ON memories(valid_until)",
    "idx_memories_supersedes": "CREATE INDEX idx_memories_supersedes ON memories(supersedes)",
    "idx_memories_superseded_by": "CREATE INDEX idx_memories_superseded_by ON memories(superseded_by)",
    "idx_docs": "CREATE TABLE idx_docs(doc INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, dl INTEGER NOT NULL)",
    "idx_terms": "CREATE TABLE idx_terms(tid INTEGER PRIMARY KEY, term TEXT NOT NULL UNIQUE, df INTEGER NOT NULL)",
    "idx_postings": """CREATE TABLE idx_postings(
        tid INTEGER, doc INTEGER, f INTEGER NOT NULL, dl INTEGER NOT NULL, PRIMARY KEY (tid, doc)) WITHOUT ROWID""",
    "idx_totals": "CREATE TABLE idx_totals(n INTEGER NOT NULL, dl_sum INTEGER NOT NULL)",
    "idx_pending": "CREATE TABLE idx_pending(id TEXT PRIMARY KEY)",
    "idx_meta": "CREATE TABLE idx_meta(key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "idx_memory_inserted": f"""CREATE TRIGGER idx_memory_inserted AFTER INSERT ON memories
        BEGIN {_MAKE_PENDING.format(row="NEW")} END""",
    "idx_memory_deleted": f"""CREATE TRIGGER idx_memory_deleted AFTER DELETE ON memories
        BEGIN {_MAKE_PENDING.format(row="OLD")} END""",
    "idx_memory_updated": f"""CREATE TRIGGER idx_memory_updated AFTER UPDATE OF id, text, valid_until ON memories
        BEGIN {_MAKE_PENDING.format(row="OLD")} {_MAKE_PENDING.format(row="NEW")} END""",
    "erasures": scrub.NOTES_TABLE,
}
"""What the layout has beside `memories`, by name, in an order in which it can be created."""

# The first count needs only the index on valid_until. The unary plus sends the second one to the primary key's index:
# rows whose id is no text are few, and lie at the ends of it.
_COUNTS_AGREE: Final = """
SELECT
  (SELECT count(*) FROM memories WHERE valid_until IS NULL)
  - (SELECT count(*) FROM memories WHERE +valid_until IS NULL AND (id IS NULL OR id < '' OR id >= x''))
  - (SELECT count(*) FROM idx_pending p CROSS JOIN memories m ON m.id = p.id WHERE m.valid_until IS NULL)
  = (SELECT sum(n) FROM idx_totals) - (SELECT count(*) FROM idx_pending p CROSS JOIN idx_docs d ON d.id = p.id)
"""

logger = logging.getLogger(__name__)


def is_current(connection: Connection) -> bool:
    """Return whether nothing is missing, and the index has our term rules and counts the memories there are."""
    return (
        not _missing(connection)
        and _columns(connection).issuperset(_COLUMNS_ADDED)
        and has_our_terms(connection)
        and _counts_agree(connection)
    )


def migrate(connection: Connection) -> None:
    """Bring a store of any older layout to this one, inside the caller's transaction; memories keep all they have."""
    connection.execute(_MEMORIES)
    columns = _columns(connection)
    if not columns.issuperset(_COLUMNS_REQUIRED):
        raise StoreError(
            f"{connection.filename} has a table memories without {', '.join(_COLUMNS_REQUIRED)}: "
            "it is not a memory store; move it away"
        )
    for column, kind in _COLUMNS_ADDED.items():
        if column not in columns:
            connection.execute(f"ALTER TABLE memories ADD COLUMN {column} {kind}")
    if "valid_from" not in columns:
        connection.execute("UPDATE memories SET valid_from = created_at")
    missing = _missing(connection)
    for name in missing:
        connection.execute(OBJECTS[name])
    if missing or not has_our_terms(connection):
        rebuild_index(connection)
    elif not _counts_agree(connection):
        logger.warning("%s: the recall index does not count the memories there are; it is rebuilt", connection.filename)
        rebuild_index(connection)


def rebuild_index(connection: Connection) -> None:
    """Empty the index and make every current memory pending, inside the caller's transaction."""
    connection.execute(
        """
        DELETE FROM idx_docs; DELETE FROM idx_terms; DELETE FROM idx_postings; DELETE FROM idx_totals;
        DELETE FROM idx_pending;
        INSERT INTO idx_totals VALUES (0, 0);
        INSERT OR IGNORE INTO idx_pending SELECT id FROM memories WHERE valid_until IS NULL AND typeof(id) = 'text'
        """
    )
    connection.execute("INSERT OR REPLACE INTO idx_meta VALUES ('term_rules', ?)", (terms.TERM_RULES,))


def recreate_derived(connection: Connection) -> None:
    """Make anew, inside the caller's transaction, all that follows from the memories, whatever is there of it."""
    derived = [name for name in OBJECTS if name != "erasures"]
    for name in reversed(derived):
        connection.execute(f"DROP {_kind(name)} IF EXISTS {name}")
    for name in _missing(connection):
        connection.execute(OBJECTS[name])
    connection.execute("REINDEX")
    rebuild_index(connection)


def _kind(name: str) -> str:
    """Return `TABLE`, `INDEX` or `TRIGGER`."""
    return OBJECTS[name].split()[1]


def _missing(connection: Connection) -> list[str]:
    return files.missing(connection, OBJECTS)


def has_our_terms(connection: Connection) -> bool:
    """Return whether the index was made by the rules for terms that this program has."""
    return connection.execute("SELECT value FROM idx_meta WHERE key = 'term_rules'").get == terms.TERM_RULES


def _counts_agree(connection: Connection) -> bool:
    return bool(connection.execute(_COUNTS_AGREE).get)


def _columns(connection: Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM pragma_table_info('memories')")}
