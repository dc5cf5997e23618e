"""Lines in and out of descriptors, and JSON-RPC messages in and out of lines."""

import json
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import INVALID_REQUEST, PARSE_ERROR, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from cavemem_mcp.lines import CHUNK_BYTES, LINE_BYTES_MAX, not_blocking, read_lines, write_line
from cavemem_mcp.transport import InvalidMessageError, encode_message, parse_message


@contextmanager
def _pipe() -> Generator[tuple[int, int]]:
    """Make a pipe; the test may close its reading end."""
    reader, writer = os.pipe()
    try:
        yield reader, writer
    finally:
        os.close(writer)
        with suppress(OSError):
            os.close(reader)


def _write_in_pieces(descriptor: int, data: bytes, piece_bytes: int) -> None:
    with open(descriptor, "wb", buffering=0) as stream:
        for start in range(0, len(data), piece_bytes):
            stream.write(data[start : start + piece_bytes])


async def _lines_of(data: bytes, piece_bytes: int) -> list[bytes | None]:
    reader, writer = os.pipe()
    thread = threading.Thread(target=_write_in_pieces, args=(writer, data, piece_bytes))
    thread.start()
    try:
        with anyio.fail_after(20):
            return [line async for line in read_lines(reader)]
    finally:
        os.close(reader)
        thread.join()


@given(
    st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"\r")), max_size=8),
    st.binary(max_size=3).map(lambda line: line.replace(b"\n", b"\r")),
    st.integers(1, 64),
)
def test_lines_come_out_as_they_went_in_however_they_are_cut(
    lines: list[bytes], unended: bytes, piece_bytes: int
) -> None:
    data = b"".join(line + b"\n" for line in lines) + unended
    assert anyio.run(_lines_of, data, piece_bytes) == lines + ([unended] if unended else [])


async def test_a_line_that_is_too_long_is_skipped_and_reported_in_its_place() -> None:
    longest = b"x" * LINE_BYTES_MAX
    data = b"before\n" + longest + b"y\nbetween\n" + longest + b"\n" + longest + b"y"
    assert await _lines_of(data, CHUNK_BYTES) == [b"before", None, b"between", longest, None]


async def test_a_regular_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "requests"
    path.write_bytes(b"one\n" * 50_000 + b"two")
    with path.open("rb", buffering=0) as stream, anyio.fail_after(20):
        lines = [line async for line in read_lines(stream.fileno())]
    assert lines == [b"one"] * 50_000 + [b"two"]


async def test_writing_waits_while_the_reader_is_behind_and_other_work_goes_on() -> None:
    line = b"z" * (1024 * 1024)
    received = bytearray()
    with _pipe() as (reader, writer), not_blocking(writer), anyio.fail_after(20):
        assert not os.get_blocking(writer)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write_line, writer, line)
            await anyio.wait_all_tasks_blocked()  # the pipe is full, this task is not
            while len(received) <= len(line):
                await anyio.wait_readable(reader)
                received += os.read(reader, 65536)
    assert received == line + b"\n"


async def test_a_pipe_blocks_again_after_use() -> None:
    with _pipe() as (_, writer):
        with not_blocking(writer):
            assert not os.get_blocking(writer)
        assert os.get_blocking(writer)


async def test_writing_to_nobody_is_an_error() -> None:
    with _pipe() as (reader, writer), not_blocking(writer):
        os.close(reader)
        with pytest.raises(BrokenPipeError):
            await write_line(writer, b"hello")


@pytest.mark.parametrize(
    "line",
    [
        b"hello",
        b"{",
        b'{"jsonrpc":"2.0","id":1,"method":"ping"} x',
        b"\xff\xfe",
        b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
        b'{"n":' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
    ids=range(8),
)
def test_what_is_no_json_is_a_parse_error(line: bytes) -> None:
    with pytest.raises(InvalidMessageError) as raised:
        parse_message(line)
    assert raised.value.answer.error.code == PARSE_ERROR
    assert raised.value.answer.id is None


@pytest.mark.parametrize(
    ("line", "id"),
    [
        (b"[]", None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', None),
        (b"5", None),
        (b"null", None),
        (b"{}", None),
        (b'{"jsonrpc":"1.0","id":7,"method":"ping"}', 7),
        (b'{"id":"a","method":"ping"}', "a"),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":3}', 3),
        (b'{"jsonrpc":"2.0","id":3,"method":5}', 3),
        (b'{"jsonrpc":"2.0","id":3,"method":"ping","params":[1]}', 3),
    ],
    ids=range(14),
)
def test_what_is_no_message_is_an_invalid_request_under_its_id_if_it_has_one(line: bytes, id: object) -> None:
    with pytest.raises(InvalidMessageError) as raised:
        parse_message(line)
    assert raised.value.answer.error.code == INVALID_REQUEST
    assert raised.value.answer.id == id


def test_a_refusal_always_has_an_id_member() -> None:
    with pytest.raises(InvalidMessageError) as raised:
        parse_message(None)
    assert json.loads(encode_message(raised.value.answer))["id"] is None


def test_half_a_surrogate_pair_reaches_the_message() -> None:
    message = parse_message(rb'{"jsonrpc":"2.0","id":1,"method":"x","params":{"text":"a\ud800"}}')
    assert isinstance(message, JSONRPCRequest)
    assert message.params == {"text": "a\ud800"}


def test_an_id_inside_a_notification_does_not_make_it_a_request() -> None:
    message = parse_message(b'{"jsonrpc":"2.0","method":"x","params":{"id":1}}')
    assert isinstance(message, JSONRPCNotification)


@given(st.text(st.characters(codec=None, categories=None)))
def test_every_message_can_be_encoded_on_one_line(text: str) -> None:
    line = encode_message(JSONRPCResponse(jsonrpc="2.0", id=text, result={"text": text}))
    assert b"\n" not in line
    decoded = cast("dict[str, object]", json.loads(line))
    assert decoded["id"] == text
    assert decoded["result"] == {"text": text}
