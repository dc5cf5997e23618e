"""Lines of bytes over this process's stdin and stdout: bounded ones in, whole ones out. Knows no protocol."""

import os
import stat
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from typing import Final

import anyio
import anyio.lowlevel

LINE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Longest line that is kept: ten times what the largest memory needs with every character escaped."""
CHUNK_BYTES: Final = 64 * 1024


def claim_stdio() -> tuple[int, int]:
    """Return private descriptors of stdin and stdout, and divert the standard ones for the rest of the process.

    From then on stray reads find nothing and stray output, of child processes too, goes to stderr.
    """
    while (filler := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass  # a standard descriptor that was closed at launch must not become a file of ours
    incoming, outgoing = os.dup(0), os.dup(1)
    os.dup2(filler, 0)
    os.dup2(2, 1)
    os.close(filler)
    return incoming, outgoing


async def read_lines(descriptor: int) -> AsyncGenerator[bytes | None]:
    """Yield each line without its newline, and None for one that was too long to keep, until the input ends."""
    mode = os.fstat(descriptor).st_mode
    can_wait = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)  # files are always ready
    line = bytearray()
    is_too_long = False
    while chunk := await _read_chunk(descriptor, can_wait=can_wait):
        *ends, rest = chunk.split(b"\n")
        for piece in ends:
            line += piece
            is_too_long = is_too_long or len(line) > LINE_BYTES_MAX
            yield None if is_too_long else bytes(line)
            line.clear()
            is_too_long = False
        line += rest
        if len(line) > LINE_BYTES_MAX:
            line.clear()
            is_too_long = True
    if line or is_too_long:
        yield None if is_too_long else bytes(line)


async def write_line(descriptor: int, line: bytes) -> None:
    """Write a line whole, waiting while its reader is behind. Cancelled half-way, the output must not be used again.

    Raises:
        OSError: Nobody reads any more.
    """
    rest = memoryview(line + b"\n")
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            await anyio.wait_writable(descriptor)


@contextmanager
def not_blocking(descriptor: int) -> Generator[None]:
    """Make writing to a pipe or socket return at once, for a while: the setting is shared with other processes.

    Terminals stay as they are, because the shell that comes back shares them, and files never block.
    """
    mode = os.fstat(descriptor).st_mode
    if not os.get_blocking(descriptor) or not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        yield
        return
    os.set_blocking(descriptor, False)
    try:
        yield
    finally:
        os.set_blocking(descriptor, True)


async def _read_chunk(descriptor: int, *, can_wait: bool) -> bytes:
    while True:
        if can_wait:
            await anyio.wait_readable(descriptor)
        else:
            await anyio.lowlevel.checkpoint()
        try:
            return os.read(descriptor, CHUNK_BYTES)
        except BlockingIOError:
            continue
        except OSError:  # the other end was reset, or the terminal hung up
            return b""
