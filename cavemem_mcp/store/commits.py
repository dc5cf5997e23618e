"""Commits shared by callers that wait at the same time. Knows transactions; not what runs in them.

A commit costs a sync of the disk, and while one is under way other callers arrive. One of them leads: it commits for
all that wait, and then lets one of those lead that have come meanwhile. No thread of its own, nothing to drain at
close, and errors rise in the callers whose work raised them. A single caller leads at once, and pays nothing.
"""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Generic, TypeVar

import apsw

from cavemem_mcp.store import files
from cavemem_mcp.store.files import Connection

T = TypeVar("T")
R = TypeVar("R")
Lender = Callable[[], AbstractContextManager[Connection]]

GROUP_MAX: Final = 256
"""Most requests of one transaction."""


class Request(Generic[T, R]):
    """Work that waits for a transaction of type T, and what became of it."""

    def __init__(self, work: Callable[[T], R]) -> None:
        self._work = work
        self._outcome: tuple[R] | BaseException | None = None
        self.leads = False
        self.is_answered = False
        self._stirred = threading.Event()

    def stir(self) -> None:
        """Let its caller go on: it is answered, or leads."""
        self._stirred.set()

    def wait(self, deadline: float | None = None) -> bool:
        """Wait until it is answered or leads; False when neither has come by the deadline."""
        return self._stirred.wait(None if deadline is None else max(deadline - time.monotonic(), 0))

    def run(self, transaction: T) -> None:
        """Run the work, keeping what it returns or raises."""
        try:
            self._outcome = (self._work(transaction),)
        except Exception as error:
            self._outcome = error
            raise

    def fail(self, error: BaseException) -> None:
        """Take back what the work returned: its transaction did not commit."""
        self._outcome = error

    def result(self) -> R:
        """Return what the work returned in a committed transaction, or raise what prevented that."""
        assert self._outcome is not None, "a request is answered before its caller goes on"
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome[0]


class SharedCommits(Generic[T]):
    """The requests that wait for one writing connection."""

    def __init__(self, begin: Callable[[Connection], T], finish: Callable[[T], None]) -> None:
        """Take what makes the object that work runs on, and what is done once before each commit."""
        self._begin = begin
        self._finish = finish
        self._lock = threading.Lock()
        self._waiting: list[Request[T, object]] = []
        self._is_led = False

    def add(self, work: Callable[[T], R]) -> Request[T, R]:
        """Let work wait for the next transaction; where nobody leads, its caller does."""
        request = Request(work)
        with self._lock:
            self._waiting.append(request)  # pyright: ignore[reportArgumentType]  # results go back to who asked
            if not self._is_led:
                self._is_led = request.leads = True
                request.stir()
        return request

    def leave(self, request: Request[T, R]) -> None:
        """Let another lead, if this request's caller did."""
        with self._lock:
            if not request.leads:
                return
            self._is_led = bool(self._waiting)
            if self._is_led:
                self._waiting[0].leads = True
                self._waiting[0].stir()

    def withdraw(self, request: Request[T, R]) -> bool:
        """Take a request back; False when it has been taken up already and will be answered."""
        with self._lock:
            before = len(self._waiting)
            self._waiting = [waiting for waiting in self._waiting if waiting is not request]
            return len(self._waiting) < before

    def commit(self, lend: Lender, deadline: float) -> None:
        """Run what waits, in one transaction, and answer it. The caller holds the connection that is lent."""
        with self._lock:
            group, self._waiting = self._waiting[:GROUP_MAX], self._waiting[GROUP_MAX:]
        try:
            self._commit_or_fail(group, lend, deadline)
        finally:
            for request in group:
                request.is_answered = True
                request.stir()

    def _commit_or_fail(self, group: list[Request[T, object]], lend: Lender, deadline: float) -> None:
        """Give every request its outcome; what a request returned in a transaction that failed is taken back."""
        try:
            self._commit_together(group, lend, deadline)
        except Exception as error:
            for request in group:
                request.fail(error)
            if isinstance(error, apsw.BusyError):
                return
        except BaseException:  # the interruption of one thread must not end those for which it commits
            for request in group:
                request.fail(apsw.InterruptError("the thread that commits was interrupted"))
            raise
        else:
            return
        if len(group) > 1:  # the failure of one must not be another's
            for request in group:
                self._commit_or_fail([request], lend, deadline)

    def _commit_together(self, group: list[Request[T, object]], lend: Lender, deadline: float) -> None:
        with lend() as connection, files.transaction(connection, deadline):
            transaction = self._begin(connection)
            for request in group:
                if len(group) == 1:
                    request.run(transaction)
                else:
                    _run_in_savepoint(request, transaction, connection)
            self._finish(transaction)


def _run_in_savepoint(request: Request[T, object], transaction: T, connection: Connection) -> None:
    """Run a request so that its failure undoes its own changes alone."""
    connection.execute("SAVEPOINT request")
    try:
        request.run(transaction)
    except Exception:
        if not connection.in_transaction:  # the failure has undone the others too
            raise
        connection.execute("ROLLBACK TO request")
    connection.execute("RELEASE request")
