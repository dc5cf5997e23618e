"""Look at the files of a store past the code that wrote them: what is in them, down to every 16 bytes."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from cavemem_mcp.store.files import Connection
from tests.faults import invariants
from tests.faults.reference import Version

PIECE_BYTES = 16
_BLOCK_BYTES = 8  # every piece holds a whole block that begins at a multiple of its size


def stored_versions(connection: Connection) -> dict[str, Version]:
    rows = connection.execute("SELECT id, text, supersedes, superseded_by, valid_until IS NULL FROM memories")
    return {
        id: Version(id=id, text=text, supersedes=earlier, superseded_by=later, is_current=bool(is_current))
        for id, text, earlier, later, is_current in rows
    }


def check_files(folder: Path) -> dict[str, Version]:
    """Fail unless everything holds that must at any time; return the versions there are."""
    invariants.check(folder)
    with closing(invariants.connect(folder / "mem.db")) as connection:
        return stored_versions(connection)


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
