"""The product's words: memories, hits and results, ids and handles, limits, and the checks of arguments. No I/O."""

import hashlib
import time
from dataclasses import asdict, dataclass
from typing import Final

from cavemem_mcp.errors import InvalidArgumentsError, MemoryTooLargeError

MEMORY_BYTES_MAX: Final = 256 * 1024
"""Largest memory, in bytes of UTF-8."""
LIMIT_DEFAULT: Final = 5
LIMIT_MAX: Final = 1000
"""Most hits of one recall; a caller's larger limit counts as this one."""
TOKEN_BUDGET_DEFAULT: Final = 2000
INTEGER_MAX: Final = 2**53 - 1
"""Largest integer argument: above it JSON numbers stop being exact in many clients."""
INTEGER_DIGITS_MAX: Final = 40
"""Longest integer in a string that is still read, so that reading one stays cheap."""
SCORE_THRESHOLD: Final = 0.1
"""A memory that scores less recalls nothing."""
BASIS: Final = "inferred"
"""Label of scores and token counts: computed from the text, not judged by a model."""

Json = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class Memory:
    """One stored version of a fact, current while `valid_until` is None. Times are RFC 3339 UTC with nanoseconds."""

    id: str
    text: str
    created_at: str
    valid_from: str
    valid_until: str | None = None
    supersedes: str | None = None
    superseded_by: str | None = None

    @property
    def is_current(self) -> bool:
        """Whether recall may return this version."""
        return self.valid_until is None

    def as_json(self) -> Json:
        """Return the contract's Memory object; unset fields are left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Hit:
    """One recalled memory.

    Attributes:
        text: What to put before the model; the whole original unless `recovery_handle` is set.
        score: BM25 score.
        tokens_added: o200k_base tokens of `text`.
        recovery_handle: Gives back the exact original when `text` is shortened.
    """

    id: str
    text: str
    score: float
    tokens_added: int
    recovery_handle: str | None = None

    def as_json(self) -> Json:
        """Return the contract's Hit object."""
        handle = {} if self.recovery_handle is None else {"recovery_handle": self.recovery_handle}
        return {
            "id": self.id,
            "text": self.text,
            "score": self.score,
            "tokens_added": self.tokens_added,
            "basis": BASIS,
            **handle,
        }


@dataclass(frozen=True, kw_only=True)
class Remembered:
    """Result of remember."""

    id: str
    created_at: str

    def as_json(self) -> Json:
        """Return the contract's result object."""
        return {"id": self.id, "created_at": self.created_at, "basis": BASIS}


@dataclass(frozen=True, kw_only=True)
class Recall:
    """Result of recall: hits by score descending, then id.

    Attributes:
        omitted: How many ranked hits the token budget left out.
        more: Whether memories beyond the limit matched too.
    """

    hits: tuple[Hit, ...]
    omitted: int = 0
    more: bool = False

    def as_json(self) -> Json:
        """Return the contract's result object; `omitted` and `more` appear only when they say something."""
        result: Json = {"hits": [hit.as_json() for hit in self.hits], "basis": BASIS}
        if self.omitted:
            result["omitted"] = self.omitted
        if self.more:
            result["more"] = True
        return result


@dataclass(frozen=True, kw_only=True)
class Superseded:
    """Result of supersede: the new version's id and the replaced one's."""

    id: str
    supersedes: str
    created_at: str

    def as_json(self) -> Json:
        """Return the contract's result object."""
        return {"id": self.id, "supersedes": self.supersedes, "created_at": self.created_at, "basis": BASIS}


@dataclass(frozen=True, kw_only=True)
class History:
    """Result of history: every version of one chain, oldest first."""

    history: tuple[Memory, ...]

    def as_json(self) -> Json:
        """Return the contract's result object."""
        return {"history": [memory.as_json() for memory in self.history], "basis": BASIS}


@dataclass(frozen=True, kw_only=True)
class Forgotten:
    """Result of forget: whether there was such a version."""

    forgotten: bool

    def as_json(self) -> Json:
        """Return the contract's result object."""
        return {"forgotten": self.forgotten}


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """Result of recover: the exact original, or one page of it.

    Attributes:
        text: The original, or the page.
        bytes: UTF-8 size of the whole original.
        offset: Where the page begins, in UTF-8 bytes; None when `text` is the whole original.
        next_offset: Where the next page begins; None when this is the last.
    """

    handle: str
    text: str
    bytes: int
    offset: int | None = None
    next_offset: int | None = None

    def as_json(self) -> Json:
        """Return the contract's result object."""
        result: Json = {"handle": self.handle, "text": self.text, "bytes": self.bytes, "basis": BASIS}
        if self.offset is not None:
            result["offset"] = self.offset
        if self.next_offset is not None:
            result["next_offset"] = self.next_offset
        return result


@dataclass(frozen=True, kw_only=True)
class Largest:
    """The memory with the longest text, in bytes of UTF-8."""

    id: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """What there is in a store at one moment.

    Attributes:
        current: Versions that recall may return.
        expired: Versions that are kept for history only.
        chains: Facts, each with all its versions.
        text_bytes: UTF-8 size of all texts, expired ones included.
        oldest: When the first version was stored; None in an empty store.
        newest: When the last one was.
    """

    current: int
    expired: int
    chains: int
    text_bytes: int
    oldest: str | None
    newest: str | None
    largest: Largest | None


def memory_id(text: str) -> str:
    """Return the id of a text: `mem_` and 16 hex digits of its SHA-256."""
    return "mem_" + hashlib.sha256(text.encode()).hexdigest()[:16]


def recovery_handle(text: str) -> str:
    """Return the recovery handle of a text: `ccr_` and 32 hex digits of its SHA-256."""
    return handle_of(text.encode())


def handle_of(original: bytes) -> str:
    """Return the recovery handle of an original's bytes."""
    return "ccr_" + hashlib.sha256(original).hexdigest()[:32]


def memory_id_of_handle(handle: str) -> str:
    """Return the id that the memory behind a handle must have: both begin with the same 16 hex digits."""
    return "mem_" + handle.removeprefix("ccr_")[:16]


def handle_stem_of(memory_id: str) -> str | None:
    """Return how the handle of a memory's text begins, or None for an id that was not computed here."""
    digits = memory_id.removeprefix("mem_")
    is_ours = memory_id.startswith("mem_") and len(digits) == 16 and not set(digits) - set("0123456789abcdef")
    return f"ccr_{digits}" if is_ours else None


def timestamp(unix_ns: int) -> str:
    """Format nanoseconds since 1970 as RFC 3339 UTC, for example `2026-01-31T08:00:00.000000001Z`."""
    seconds, nanoseconds = divmod(unix_ns, 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{nanoseconds:09d}Z"


def checked_string(name: str, value: object) -> str:
    """Return a string argument that can be encoded: no half of a surrogate pair.

    Raises:
        InvalidArgumentsError: It is not a string or not valid Unicode.
    """
    if not isinstance(value, str):
        raise InvalidArgumentsError(f"{name}: must be a string, got {kind_of(value)}; send JSON text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentsError(
            f"{name}: holds half of a surrogate pair at character {error.start}; send whole Unicode characters"
        ) from None
    return value


def checked_nonblank(name: str, value: object) -> str:
    """Return a string argument with at least one character that is not white space.

    Raises:
        InvalidArgumentsError: As `checked_string`, or it is blank.
    """
    string = checked_string(name, value)
    if not string or string.isspace():
        raise InvalidArgumentsError(f"{name}: must not be blank; send at least one visible character")
    return string


def checked_text(name: str, value: object) -> str:
    """Return a text that may become a memory.

    Raises:
        InvalidArgumentsError: As `checked_nonblank`.
        MemoryTooLargeError: It has more than `MEMORY_BYTES_MAX` bytes of UTF-8.
    """
    text = checked_nonblank(name, value)
    size = len(text.encode())
    if size > MEMORY_BYTES_MAX:
        raise MemoryTooLargeError(
            f"{name}: {size} bytes of UTF-8, at most {MEMORY_BYTES_MAX} fit in one memory; nothing was stored: "
            "split it or store a summary"
        )
    return text


def checked_integer(name: str, value: object, *, maximum: int = INTEGER_MAX) -> int:
    """Return an integer argument of 0 or more, sent as `5`, `5.0` or `"5"`.

    Raises:
        InvalidArgumentsError: It is anything else or out of range.
    """
    match value:
        case bool():
            integer = None
        case int():
            integer = value
        case float() if value.is_integer():
            integer = int(value)
        case str() if len(value) <= INTEGER_DIGITS_MAX and value.isascii() and value.removeprefix("-").isdigit():
            integer = int(value)
        case _:
            integer = None
    if integer is None:
        raise InvalidArgumentsError(f"{name}: must be an integer, got {kind_of(value)}; send for example 5")
    if integer < 0:
        raise InvalidArgumentsError(f"{name}: must be 0 or more; send for example 5")
    if integer > maximum:
        raise InvalidArgumentsError(f"{name}: must be at most {maximum}; send a smaller integer")
    return integer


def kind_of(value: object) -> str:
    """Name the JSON kind of a value, for messages that must not repeat the value."""
    if value is None:
        return "null"
    kinds: dict[type, str] = {bool: "a boolean", int: "an integer", float: "a number", str: "a string", list: "a list"}
    return kinds.get(type(value), "an object")


def limit_from_wire(limit: int) -> int:
    """Turn a caller's limit into ours: 0 means the default, more than the most means the most."""
    return min(limit or LIMIT_DEFAULT, LIMIT_MAX)


def budget_from_wire(token_budget: int) -> int | None:
    """Turn a caller's token budget into ours: the zero sentinel means no cap, which is None inside."""
    return token_budget or None
