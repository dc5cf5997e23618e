"""The writing connection of a store, for tests that make it fail or look at it."""

from cavemem_mcp.store.files import Connection
from cavemem_mcp.store.sqlite import SqliteStore


def writer_of(store: SqliteStore) -> Connection:
    """Return the connection that writes, while nobody writes."""
    assert store._writer is not None
    return store._writer
