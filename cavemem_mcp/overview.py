"""What is in a memory, for the person whose memory it is: how much there is, and a list of it. Changes nothing."""

import unicodedata
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import Final

from cavemem_mcp import __version__
from cavemem_mcp.errors import InvalidArgumentsError
from cavemem_mcp.model import Json, Memory, Statistics
from cavemem_mcp.service import Cavemem
from cavemem_mcp.terms import TERM_RULES

LIST_LIMIT_DEFAULT: Final = 50
"""How many memories a list shows unless told otherwise."""

_MINUTES: Final = len("2026-01-31 08:00")


@dataclass(frozen=True, kw_only=True)
class Status:
    """How much there is, where, and of which versions. Sizes are in bytes, times RFC 3339 UTC."""

    path: str
    versions: dict[str, str | int]
    statistics: Statistics
    store_file_bytes: int
    recovery_file_bytes: int

    def as_json(self) -> Json:
        """Return the status as a JSON object; `oldest`, `newest` and `largest` are null in an empty store."""
        counted = asdict(self.statistics)
        text_bytes = counted.pop("text_bytes")
        sizes = {"text": text_bytes, "store_file": self.store_file_bytes, "recovery_file": self.recovery_file_bytes}
        return {"path": self.path, "versions": self.versions, "bytes": sizes, **counted}

    def as_text(self) -> str:
        """Return the status as lines for people."""
        found = self.statistics
        lines = {
            "store": self.path,
            "versions": ", ".join(f"{name} {version}" for name, version in self.versions.items()),
            "memories": f"{found.current:,} current, {found.expired:,} expired, in {found.chains:,} chains",
            "text": f"{found.text_bytes:,} bytes",
            "files": f"{self.store_file_bytes:,} bytes of memories, {self.recovery_file_bytes:,} of originals",
        }
        if found.largest:
            lines["largest"] = f"{found.largest.id}, {found.largest.bytes:,} bytes"
        if found.oldest and found.newest:
            lines |= {"oldest": found.oldest, "newest": found.newest}
        return "".join(f"{name:<10}{line}\n" for name, line in lines.items())


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Memories, newest first, and whether there are more than the limit let through."""

    memories: tuple[Memory, ...]
    more: bool

    def as_json(self) -> Json:
        """Return the list as a JSON object; `more` appears only when there are more."""
        listed: Json = {"memories": [memory.as_json() for memory in self.memories]}
        return listed | {"more": True} if self.more else listed

    def as_table(self, width: int | None) -> str:
        """Return the list as a table, one line a memory; what is wider than `width` columns is cut (None: nothing)."""
        has_ends = any(memory.valid_until for memory in self.memories)
        rows = [("id", "stored (UTC)", "expired", "text")] + [
            (memory.id, _minutes(memory.created_at), _minutes(memory.valid_until or ""), memory.text)
            for memory in self.memories
        ]
        lines: list[str] = []
        for id, stored, expired, text in rows:
            columns = [f"{id:<20}", f"{stored:<{_MINUTES}}", f"{expired:<{_MINUTES}}" if has_ends else None, text]
            line = _printable("  ".join(column for column in columns if column is not None))
            lines.append(line if width is None else _cut(line, width))
        return "".join(f"{line}\n" for line in lines)


def status(memory: Cavemem) -> Status:
    """Count what is in a memory.

    Raises:
        StoreError: The store cannot be read; says what to do.
    """
    with memory.store.read() as snapshot:
        statistics = snapshot.statistics()
    about = dict(memory.store.about())
    return Status(
        path=str(about.pop("path")),
        store_file_bytes=int(about.pop("file_bytes")),
        versions={"cavemem": __version__, **about, "term_rules": TERM_RULES},
        statistics=statistics,
        recovery_file_bytes=memory.recovery.file_bytes(),
    )


def listing(
    memory: Cavemem,
    *,
    since: str | None = None,
    contains: str = "",
    expired: bool = False,
    limit: int = LIST_LIMIT_DEFAULT,
) -> Listing:
    """List memories, newest first.

    Args:
        memory: What to list.
        since: Leave out what was stored earlier than this date (`2026-01-31`) or time (`2026-01-31T08:00+01:00`),
            UTC unless it says otherwise.
        contains: Leave out what does not contain this text, in any case.
        expired: Whether to list expired versions too.
        limit: Most memories.

    Raises:
        InvalidArgumentsError: `since` is neither a date nor a time.
        StoreError: The store cannot be read; says what to do.
    """
    earliest = _time(since) if since else ""
    wanted = contains.casefold()
    with memory.store.read() as snapshot:
        recent = takewhile(lambda found: found.created_at >= earliest, snapshot.memories())
        matching = (found for found in recent if (expired or found.is_current) and wanted in found.text.casefold())
        memories = tuple(islice(matching, limit + 1))
    return Listing(memories=memories[:limit], more=len(memories) > limit)


def _time(since: str) -> str:
    """Return a date or time so that stored times compare with it as text."""
    try:
        time = datetime.fromisoformat(since)
        utc = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidArgumentsError("since: is neither a date nor a time; send for example 2026-01-31") from None
    return utc.strftime("%Y-%m-%dT%H:%M:%S") + f".{utc.microsecond:06d}000"


def _minutes(time: str) -> str:
    return time[:_MINUTES].replace("T", " ")


def _printable(text: str) -> str:
    """Return a text on one line and without anything that a terminal would obey."""
    return "".join(character if character.isprintable() else " " for character in text)


def _cut(line: str, width: int) -> str:
    """Cut a line to the columns of a terminal, where a character may take none, one or two."""
    columns = 0
    ends = list(_ends(line))
    if not ends or ends[-1] <= width:
        return line
    columns = sum(end <= width - 1 for end in ends)
    return line[:columns] + "…"


def _ends(line: str) -> Iterator[int]:
    """Yield the column where each character ends."""
    column = 0
    for character in line:
        if not unicodedata.combining(character):
            column += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        yield column
