"""Our own package in another process: opens a folder's memory, does what it is told, can be stopped while it writes."""

import os
import pickle
import signal
import subprocess
import sys
from types import TracebackType
from typing import Any, Final, Self

_SCRIPT: Final = """
import pickle, sys
from cavemem_mcp import open_memory
from cavemem_mcp.errors import CaveError

def answer(value):
    pickle.dump(value, sys.stdout.buffer)
    sys.stdout.buffer.flush()

def read():
    with memory.store.read() as snapshot:
        answer(snapshot.statistics())
        pickle.load(sys.stdin.buffer)

def write(text):
    def work(transaction):
        result = memory._remember(transaction, text)
        answer(None)
        pickle.load(sys.stdin.buffer)
        return result
    return memory.store.write(work)

memory = None
while True:
    try:
        name, values, options = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    try:
        if name == "open":
            if memory is not None:
                memory.close()
            memory = open_memory(*values)
            answer(None)
        elif name == "read":
            read()
            answer(None)
        elif name == "write":
            answer(write(*values).as_json())
        elif name == "close":
            memory.close()
            memory = None
            answer(None)
        else:
            answer(getattr(memory, name)(*values, **options).as_json())
    except CaveError as error:
        answer(error.as_json())
if memory is not None:
    memory.close()
"""


class OtherProcess:
    """A process that uses one memory at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=-1
        )

    def call(self, name: str, *values: object, **options: object) -> Any:
        """Run an operation and return its answer as JSON, errors too; `open` and `close` are operations here."""
        self._send(name, *values, **options)
        return self._receive()

    def begin_reading(self) -> None:
        """Hold a snapshot from now on."""
        self._send("read")
        self._receive()

    def begin_writing(self, text: str) -> None:
        """Begin to remember a text, and hold the write lock from now on."""
        self._send("write", text)
        assert self._receive() is None

    def end(self) -> Any:
        """Let go of what was begun, and return the answer."""
        self._send("go on")
        return self._receive()

    def stop(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        self.go_on()
        self._process.communicate()

    def _send(self, name: str, *values: object, **options: object) -> None:
        assert self._process.stdin is not None
        pickle.dump((name, values, options), self._process.stdin)
        self._process.stdin.flush()

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        return pickle.load(self._process.stdout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
