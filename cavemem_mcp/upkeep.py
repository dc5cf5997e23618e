"""Work that could not be finished when it was due, repeated in a thread until it is. Knows nothing of what it does."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from cavemem_mcp.errors import CaveError, origin_of

PAUSE_SECONDS_MIN: Final = 0.5
PAUSE_SECONDS_MAX: Final = 30.0
"""Each attempt in vain doubles the pause before the next one, up to this."""

logger = logging.getLogger(__name__)


class Upkeep:
    """One piece of work, repeated while it is due. There is a thread only then.

    Args:
        work: Does it without waiting for anybody; returns whether nothing is left.
    """

    def __init__(self, work: Callable[[], bool]) -> None:
        self._work = work
        self._lock = threading.Lock()  # around the next two
        self._is_due = False
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    @property
    def is_closed(self) -> bool:
        """Whether long work should end now."""
        return self._closed.is_set()

    def wake(self) -> None:
        """Say that the work is due; after `close`, it is left to the next start."""
        with self._lock:
            self._is_due = True
            if self._thread is None and not self._closed.is_set():
                # A program that ends without closing must not be held up.
                thread = threading.Thread(target=self._run, name="cavemem upkeep", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the operation that found the work due has succeeded all the same
                    logger.warning("there is no thread for upkeep; it is put off")
                else:
                    self._thread = thread

    def close(self) -> None:
        """End the thread, after one last attempt if work is due. Closing twice is harmless."""
        self._closed.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()
        if self._is_due:
            self._is_due = not self._attempt()

    def _run(self) -> None:
        pause = PAUSE_SECONDS_MIN
        while not self._closed.wait(pause):
            with self._lock:
                self._is_due = False
            is_done = self._attempt()
            with self._lock:
                self._is_due = self._is_due or not is_done
                if not self._is_due:
                    self._thread = None
                    return
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    def _attempt(self) -> bool:
        try:
            return self._work()
        except CaveError as error:
            logger.debug("upkeep is put off: %s", error.message)
        except Exception as error:
            logger.error("upkeep failed unexpectedly: %s", origin_of(error))  # noqa: TRY400  # no message
        return False
