"""Calls in progress, for what must finish them before it closes."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager


class Calls:
    """Counts the calls of one thing that can be closed. Safe to use from several threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._have_ended = False

    @contextmanager
    def running(self, refusal: Callable[[], Exception]) -> Generator[None]:
        """Keep `end` waiting while a call runs; raise the refusal where it came first."""
        with self._changed:
            if self._have_ended:
                raise refusal()
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def end(self) -> bool:
        """Refuse calls from now on and wait for those in progress; True for who asks first."""
        with self._changed:
            is_first, self._have_ended = not self._have_ended, True
            self._changed.wait_for(lambda: self._running == 0)
            return is_first
