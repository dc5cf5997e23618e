"""Work that is repeated until it is done, also where the system gives it no thread."""

import threading

import pytest

from cavemem_mcp import upkeep
from cavemem_mcp.upkeep import Upkeep


class _NoThread(threading.Thread):
    """What `start` does where as many threads run as may."""

    def start(self) -> None:
        raise RuntimeError("can't start new thread")


def test_work_that_gets_no_thread_fails_nobody_and_is_done_when_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "PAUSE_SECONDS_MIN", 0.001)
    done = threading.Event()
    kept = Upkeep(lambda: done.set() is None)
    with monkeypatch.context() as exhausted:
        exhausted.setattr(threading, "Thread", _NoThread)
        kept.wake()
    assert not done.is_set()

    kept.wake()

    assert done.wait(10)
    kept.close()


def test_work_that_got_no_thread_is_done_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()
    kept = Upkeep(lambda: done.set() is None)
    monkeypatch.setattr(threading, "Thread", _NoThread)
    kept.wake()

    kept.close()

    assert done.is_set()
