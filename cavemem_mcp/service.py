"""What the six operations mean. Speaks model types only: knows neither SQL nor MCP nor the command line."""

import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from cavemem_mcp import bm25, packing, terms, tokens
from cavemem_mcp.calls import Calls
from cavemem_mcp.chains import chain_of, current_of
from cavemem_mcp.errors import (
    CaveError,
    InvalidArgumentsError,
    Operation,
    OperationFailedError,
    StoreError,
    StoreFullError,
)
from cavemem_mcp.model import (
    LIMIT_DEFAULT,
    SCORE_THRESHOLD,
    TOKEN_BUDGET_DEFAULT,
    Forgotten,
    History,
    Hit,
    Memory,
    Recall,
    Recovered,
    Remembered,
    Superseded,
    checked_nonblank,
    checked_string,
    checked_text,
    memory_id,
    memory_id_of_handle,
    recovery_handle,
    timestamp,
)
from cavemem_mcp.packing import Packed, Ranked, Shortened
from cavemem_mcp.recovery import BYTES_MAX, Original, RecoveryStore
from cavemem_mcp.store import Snapshot, Store, Transaction, open_store
from cavemem_mcp.upkeep import Upkeep

if TYPE_CHECKING:
    from cavemem_mcp import engine

T = TypeVar("T")

REPORTED_MEMORIES: Final = 10_000
"""How many more memories must be indexed before the log says so again."""
HANDLE_TOKENS: Final = 30
"""About what a recovery handle costs its reader: a form must save more than that."""
WHOLE_TOKENS_MAX: Final = 60
"""Texts this short stay as they are: no form of them could save a handle's cost."""

logger = logging.getLogger(__name__)


class Cavemem:
    """The memory: six operations over a store and a recovery store. Safe to call from several threads.

    Every operation raises `InvalidArgumentsError` for a bad argument, `OperationFailedError` when it cannot do what was
    asked (nothing has changed then); remember and supersede raise `MemoryTooLargeError` and `StoreFullError`.

    Args:
        store: Where the memories are.
        recovery: Where originals of shortened hits are kept.
        clock: Nanoseconds since 1970, UTC.
        store_bytes_max: Bytes that the memories may take (None: no bound); the last one may reach beyond.
    """

    def __init__(
        self,
        store: Store,
        recovery: RecoveryStore,
        *,
        clock: Callable[[], int] = time.time_ns,
        store_bytes_max: int | None = None,
    ) -> None:
        self._store = store
        self._recovery = recovery
        self._clock = clock
        self._store_bytes_max = store_bytes_max
        self._calls = Calls()
        self._upkeep = Upkeep(self._keep_up)

    @property
    def store(self) -> Store:
        """The store below the operations, for what looks at all memories or moves them."""
        return self._store

    @property
    def recovery(self) -> RecoveryStore:
        """The originals of shortened hits."""
        return self._recovery

    def remember(self, text: str) -> Remembered:
        """Store a fact; the same current text again is the same memory."""
        text = checked_text("text", text)
        with self._doing("remember"):
            return self._write(lambda transaction: self._remember(transaction, text))

    def recall(
        self, query: str, *, limit: int = LIMIT_DEFAULT, token_budget: int | None = TOKEN_BUDGET_DEFAULT
    ) -> Recall:
        """Return the best current memories, at most `limit`, within `token_budget` tokens (None: no cap)."""
        words = terms.query_terms(checked_string("query", query))
        _check_least("limit", limit, 1)
        _check_least("token_budget", token_budget, 1)
        with self._doing("recall"):
            try:
                return self._recall(words, limit, token_budget)
            except StoreError as error:
                if not error.is_mended:
                    raise
                self._upkeep.wake()
                return self._recall(words, limit, token_budget)

    def supersede(self, id: str, text: str) -> Superseded:
        """Replace the current memory `id` by a new version; the old one stays in history and is recalled no more."""
        id, text = checked_nonblank("id", id), checked_text("text", text)
        with self._doing("supersede"):
            return self._write(lambda transaction: self._supersede(transaction, id, text))

    def history(self, id: str) -> History:
        """Return every version of the chain that holds `id`, oldest first."""
        id = checked_nonblank("id", id)
        with self._doing("history"), self._store.read() as snapshot:
            return History(history=tuple(chain_of(snapshot, id)))

    def forget(self, id: str) -> Forgotten:
        """Delete one version for good, with its index entries and its recovery original."""
        id = checked_nonblank("id", id)
        with self._doing("forget"):
            forgotten = self._store.write(lambda transaction: _forget(transaction, id))
            try:
                if not self.finish_erasures(waits=True):  # also what an earlier forget could not finish
                    logger.warning(
                        "other programs read old states of the files; bytes of what was forgotten are scrubbed later"
                    )
            except StoreError as error:
                raise OperationFailedError(
                    "forget",
                    f"{'the memory is deleted and' if forgotten else 'forgotten memories are'} recalled no more, but "
                    f"bytes are still in the files; they are erased as soon as that is possible: {error.message}",
                ) from error
        return Forgotten(forgotten=forgotten)

    def recover(self, handle: str, *, offset: int = 0, token_budget: int | None = None) -> Recovered:
        """Return the original behind a handle, or its page of at most `token_budget` tokens from byte `offset`."""
        _check_least("offset", offset, 0)
        _check_least("token_budget", token_budget, 1)
        original = self.original(handle)
        try:
            original.decode()
        except UnicodeDecodeError:
            raise OperationFailedError(
                "recover", "the original is no UTF-8 text; on the command line, `cavemem recover` writes its bytes"
            ) from None
        return _page(handle, original, offset, token_budget)

    def original(self, handle: str) -> bytes:
        """Return the exact bytes behind a handle, whatever they are."""
        handle = checked_nonblank("handle", handle)
        with self._doing("recover"):
            with self._store.read() as snapshot:
                memory = snapshot.memory(memory_id_of_handle(handle))
            if memory is not None and recovery_handle(memory.text) == handle:
                return memory.text.encode()
            original = None
            if handle not in self._store.pending_erasures():  # those may still be there
                original = self._recovery.recover(handle, has_memory=memory is not None)
        if original is None:
            raise OperationFailedError(
                "recover",
                "nothing is kept under this handle: it was never issued here, or its memory was forgotten; "
                "take recovery_handle from a new recall",
            )
        return original

    def finish_erasures(self, *, waits: bool = False) -> bool:
        """Erase the bytes of what was forgotten, also by a process that crashed or by another program.

        False when other programs prevent it, for which it waits if it `waits`; then it is repeated until it is done.

        Raises:
            StoreError: The files cannot be used; their content is as it was.
        """
        handles = self._store.pending_erasures()
        if not handles:
            return True
        is_discarded = is_scrubbed = False
        try:
            is_discarded = self._recovery.discard(handles, waits=waits)
        finally:
            try:
                is_scrubbed = self._store.finish_erasures(handles if is_discarded else (), waits=waits and is_discarded)
            finally:
                if not (is_discarded and is_scrubbed):
                    self._upkeep.wake()
        return is_discarded and is_scrubbed

    def catch_up(self, *, waits: bool = True) -> None:
        """Index what other programs wrote, in small steps, until nothing is left; progress goes to the log."""
        left = reported = self._store.settle(waits=waits)
        if left:
            logger.warning("indexing %d memories that another program wrote; recall is exact meanwhile", left)
        while left and not self._upkeep.is_closed:
            left = self._store.settle(waits=waits)
            if reported - left >= REPORTED_MEMORIES or not left:
                logger.warning("indexing: %d left", left)
                reported = left
        self._wake_if_noted()

    def stop_waiting(self) -> None:
        """Let no operation wait for other programs to finish an erasure from now on, because the memory will close."""
        self._store.stop_waiting()
        self._recovery.stop_waiting()

    def close(self) -> None:
        """Close both stores; operations in progress finish first."""
        self.stop_waiting()
        self._calls.end()
        self._upkeep.close()
        try:
            self._recovery.close()
        finally:
            self._store.close()

    @contextmanager
    def _doing(self, operation: Operation) -> Generator[None]:
        """Keep `close` waiting, and turn what the storage cannot do into the failure of the operation it was for."""
        try:
            with self._calls.running(lambda: StoreError("the memory was closed; open the store again")):
                yield
        except StoreError as error:
            raise OperationFailedError(operation, error.message) from error

    def _keep_up(self) -> bool:
        self.catch_up(waits=False)
        return self.finish_erasures()

    def _write(self, work: Callable[[Transaction], T]) -> T:
        result = self._store.write(work)
        self._wake_if_noted()
        return result

    def _wake_if_noted(self) -> None:
        """Have erased what others forgot, or began to forget: other processes, and programs that know no notes."""
        if self._store.has_erasures():
            self._upkeep.wake()

    def _recall(self, words: Sequence[str], limit: int, token_budget: int | None) -> Recall:
        with self._store.read() as snapshot:
            ranking = bm25.rank(snapshot, words, limit=limit, threshold=SCORE_THRESHOLD)
            packed = packing.pack(
                _ranked(snapshot, ranking), token_budget, shorten=_Shortening(words), whole=_whole, keep=self._keep
            )
        omitted = len(ranking.best) - len(packed)
        return Recall(hits=tuple(_hit(entry) for entry in packed), omitted=omitted, more=ranking.more)

    def _remember(self, transaction: Transaction, text: str) -> Remembered:
        wanted = memory_id(text)
        stored = transaction.memory(wanted)
        if stored is None:
            memory = self._new_memory(text)
            self._insert(transaction, memory)
            return Remembered(id=memory.id, created_at=memory.created_at)
        if stored.text != text:
            raise _collision("remember", wanted)
        if not stored.is_current:
            current = current_of(transaction, stored)
            raise OperationFailedError(
                "remember",
                f"this text is an expired version, {wanted}"
                + (f", of the current memory {current.id}" if current else ", of a chain without a current version")
                + f"; forget {wanted} first to make room for it",
            )
        return Remembered(id=stored.id, created_at=stored.created_at)

    def _supersede(self, transaction: Transaction, id: str, text: str) -> Superseded:
        target = transaction.memory(id)
        if target is None:
            raise OperationFailedError("supersede", "no memory has this id; recall to find the current one")
        if not target.is_current:
            current = current_of(transaction, target)
            advice = f"by {current.id}; supersede that one" if current else "and its chain has no current version"
            raise OperationFailedError("supersede", f"{target.id} was superseded {advice}")
        if target.text == text:
            raise OperationFailedError("supersede", f"{id} already says exactly this; nothing to supersede")
        memory = self._new_memory(text, supersedes=target.id)
        taken = transaction.memory(memory.id)
        if taken is not None:
            if taken.text != text:
                raise _collision("supersede", taken.id)
            state = "current" if taken.is_current else "expired"
            raise OperationFailedError(
                "supersede", f"the new text is already stored as the {state} memory {taken.id}; forget that one first"
            )
        transaction.expire(target.id, valid_until=memory.valid_from, superseded_by=memory.id)
        self._insert(transaction, memory)
        return Superseded(id=memory.id, supersedes=target.id, created_at=memory.created_at)

    def _insert(self, transaction: Transaction, memory: Memory) -> None:
        if self._store_bytes_max is not None and transaction.bytes_used() >= self._store_bytes_max:
            raise StoreFullError(
                f"the memories take all of the {self._store_bytes_max} bytes that they may; nothing was stored and "
                "nothing is lost: forget what is no longer needed, or have the limit raised"
            )
        transaction.insert(memory)

    def _new_memory(self, text: str, *, supersedes: str | None = None) -> Memory:
        now = timestamp(self._clock())
        return Memory(id=memory_id(text), text=text, created_at=now, valid_from=now, supersedes=supersedes)

    def _keep(self, ranked: Ranked, shortened: Shortened) -> bool:
        """Keep a shortened memory's original; False when there is no room for it or the memory is gone."""
        original = Original(
            handle=recovery_handle(ranked.text),
            text=ranked.text,
            created_at=timestamp(self._clock()),
            content_type=shortened.content_type,
            compressor=shortened.method,
            tokens_before=shortened.tokens_before,
            tokens_after=shortened.tokens,
        )
        try:
            return self._recovery.keep(original, is_wanted=lambda: self._is_stored(ranked.id))
        except StoreError as error:
            logger.warning("the original of a shortened hit was not kept: %s", error.message)
            return False

    def _is_stored(self, id: str) -> bool:
        with self._store.read() as snapshot:
            return snapshot.memory(id) is not None


def open_memory(
    folder: str | Path, *, recovery_bytes_max: int = BYTES_MAX, store_bytes_max: int | None = None
) -> Cavemem:
    """Open the memory in a folder, making the folder where it is missing.

    Args:
        folder: Holds the memories and the originals of shortened hits, and nothing else.
        recovery_bytes_max: Size that the kept originals may reach.
        store_bytes_max: Size that the memories may reach; None for no bound.

    Raises:
        StoreError: The files cannot be used as they are.
    """
    folder = Path(folder)
    store = open_store(folder)
    try:
        memory = Cavemem(store, RecoveryStore(folder, bytes_max=recovery_bytes_max), store_bytes_max=store_bytes_max)
    except BaseException:
        store.close()
        raise
    try:
        memory.finish_erasures()
    except StoreError as error:
        logger.warning("what was forgotten is not erased everywhere yet: %s", error.message)
    return memory


def _ranked(snapshot: Snapshot, ranking: bm25.Ranking) -> Iterator[Ranked]:
    """Read the texts of ranked memories one by one, as far as they are asked for."""
    for id, score in ranking.best:
        memory = snapshot.memory(id)
        if memory is not None:
            yield Ranked(id, score, memory.text, is_recoverable=id == memory_id(memory.text))


class _Shortening:
    """Makes texts cheaper for the reader of one query."""

    def __init__(self, query_terms: Sequence[str]) -> None:
        self._query_terms = query_terms
        self._latest: engine.Compressible | None = None  # an oversized first hit is asked for again, with a budget

    def __call__(self, text: str, token_budget: int | None = None, /) -> Shortened:
        if self._latest is None or self._latest.text is not text:
            if (whole := _whole(text)).tokens <= WHOLE_TOKENS_MAX and token_budget is None:
                return whole
            from cavemem_mcp import engine  # takes a while to load, and most memories do not need it

            self._latest = engine.Compressible(text, self._query_terms, tokens_before=whole.tokens)
        made = self._latest.compressed(token_budget)
        if token_budget is None and made.tokens_before - made.tokens_after < HANDLE_TOKENS:
            return Shortened(text, made.tokens_before, made.tokens_before, made.content_type, "none")
        return Shortened(made.text, made.tokens_after, made.tokens_before, made.content_type, made.method)


def _whole(text: str, token_budget: int | None = None, /) -> Shortened:
    count = tokens.count(text)
    return Shortened(text, count, count, "text", "none")


def _hit(packed: Packed) -> Hit:
    (id, score, original, _), shortened = packed
    handle = None if packed.is_whole else recovery_handle(original)
    return Hit(id=id, text=shortened.text, score=score, tokens_added=shortened.tokens, recovery_handle=handle)


def _check_least(name: str, number: int | None, least: int) -> None:
    """Refuse a number that means nothing here: the zeros of the wire are translated at the edges."""
    if number is not None and number < least:
        raise InvalidArgumentsError(f"{name}: must be {least} or more; None, where it is allowed, lifts a cap")


def _collision(operation: Operation, id: str) -> CaveError:
    return OperationFailedError(
        operation, f"{id} is taken by another text with the same hash prefix; change the wording slightly"
    )


def _forget(transaction: Transaction, id: str) -> bool:
    memory = transaction.memory(id)
    if memory is None:
        return False
    transaction.delete(id)
    for neighbour_id in (memory.supersedes, memory.superseded_by):
        neighbour = transaction.memory(neighbour_id) if neighbour_id is not None else None
        if neighbour is not None:
            transaction.relink(
                neighbour.id,
                supersedes=memory.supersedes if neighbour.supersedes == id else neighbour.supersedes,
                superseded_by=memory.superseded_by if neighbour.superseded_by == id else neighbour.superseded_by,
            )
    transaction.note_erasure(recovery_handle(memory.text))
    return True


def _page(handle: str, original: bytes, offset: int, token_budget: int | None) -> Recovered:
    """Cut the page of at most `token_budget` tokens that begins at byte `offset`, between characters."""
    if offset > len(original):
        raise InvalidArgumentsError(f"offset: must be at most {len(original)}, the size of the original; start at 0")
    try:
        rest = original[offset:].decode()
    except UnicodeDecodeError:
        raise InvalidArgumentsError("offset: lies inside a character; send 0 or the next_offset of a page") from None
    text = rest if token_budget is None else tokens.head(rest, token_budget) or rest[:1]
    end = offset + len(text.encode())
    if offset == 0 and end == len(original):
        return Recovered(handle=handle, text=text, bytes=len(original))
    return Recovered(
        handle=handle,
        text=text,
        bytes=len(original),
        offset=offset,
        next_offset=end if end < len(original) else None,
    )
