"""The six tools through the SDK's client, in both protocol eras: results, arguments, failures."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from cavemem_mcp import Cavemem, StoreError, open_memory
from cavemem_mcp.model import LIMIT_MAX, Recall, memory_id, recovery_handle
from cavemem_mcp.recovery import RecoveryStore
from cavemem_mcp.server import build_server
from cavemem_mcp.store import open_store
from tests.server.answers import Era, answer, refusal

FACT = "Webshop: deploys on Tuesday because Friday broke billing"
SECRET = "xylophone-marzipan"  # a word that must not come back
INVALID = "cave_invalid_arguments"
LONE = "\ud800"


async def test_a_remembered_fact_is_recalled_superseded_shown_and_forgotten(client: Client) -> None:
    remembered = await answer(client, "remember", {"text": FACT})
    assert remembered["id"] == memory_id(FACT)
    recalled = await answer(client, "recall", {"query": "when does the webshop deploy? deploys"})
    assert [hit["text"] for hit in recalled["hits"]] == [FACT]

    newer = "Webshop: deploys on Monday since the new pipeline"
    superseded = await answer(client, "supersede", {"id": remembered["id"], "text": newer})
    assert superseded["supersedes"] == remembered["id"]
    recalled = await answer(client, "recall", {"query": "webshop"})
    assert [hit["text"] for hit in recalled["hits"]] == [newer]

    shown = await answer(client, "history", {"id": superseded["id"]})
    assert [memory["text"] for memory in shown["history"]] == [FACT, newer]
    assert await answer(client, "forget", {"id": superseded["id"]}) == {"forgotten": True}
    assert await answer(client, "forget", {"id": superseded["id"]}) == {"forgotten": False}
    assert (await answer(client, "recall", {"query": "webshop"}))["hits"] == []


async def test_an_oversized_hit_is_a_head_whose_original_comes_back_whole_or_in_pages(client: Client) -> None:
    text = "Build log. " + "step ünïcode 工程 done; " * 400
    await answer(client, "remember", {"text": text})
    (hit,) = (await answer(client, "recall", {"query": "log", "token_budget": 50}))["hits"]
    assert hit["tokens_added"] <= 50
    assert hit["recovery_handle"] == recovery_handle(text)

    whole = await answer(client, "recover", {"handle": hit["recovery_handle"]})
    assert whole["text"] == text
    pages: list[str] = []
    offset: int | None = 0
    while offset is not None:
        arguments = {"handle": hit["recovery_handle"], "offset": offset, "token_budget": 500}
        page = await answer(client, "recover", arguments)
        pages.append(page["text"])
        offset = page.get("next_offset")
    assert len(pages) > 2
    assert "".join(pages) == text


async def test_omitted_budget_bounds_recall_and_zero_lifts_the_bound(client: Client) -> None:
    for number in range(7):
        await answer(client, "remember", {"text": f"note {number} " + "about the harbour and its cranes " * 100})
    bounded = await answer(client, "recall", {"query": "harbour"})
    assert sum(hit["tokens_added"] for hit in bounded["hits"]) <= 2000
    assert bounded["omitted"] == 5 - len(bounded["hits"])
    assert bounded["more"] is True
    unbounded = await answer(client, "recall", {"query": "harbour", "token_budget": 0})
    assert len(unbounded["hits"]) == 5
    everything = await answer(client, "recall", {"query": "harbour", "token_budget": 0, "limit": 0})
    assert everything == unbounded


async def test_a_limit_above_the_most_counts_as_the_most(client: Client) -> None:
    for number in range(3):
        await answer(client, "remember", {"text": f"harbour {number}"})
    for limit in (LIMIT_MAX, LIMIT_MAX + 1, 2**53 - 1):
        assert len((await answer(client, "recall", {"query": "harbour", "limit": limit}))["hits"]) == 3


@pytest.mark.parametrize("two", [2, 2.0, "2"], ids=repr)
async def test_an_integer_may_be_sent_as_number_or_string(client: Client, two: object) -> None:
    for number in range(3):
        await answer(client, "remember", {"text": f"harbour {number}"})
    arguments = {"query": "harbour", "limit": two, "token_budget": two}
    assert len((await answer(client, "recall", {"query": "harbour", "limit": two}))["hits"]) == 2
    assert (await answer(client, "recall", arguments))["hits"][0]["tokens_added"] <= 2


async def test_null_means_omitted_for_an_optional_argument(client: Client) -> None:
    await answer(client, "remember", {"text": FACT})
    plain = await answer(client, "recall", {"query": "webshop"})
    assert await answer(client, "recall", {"query": "webshop", "limit": None, "token_budget": None}) == plain
    handle = recovery_handle(FACT)
    recovered = await answer(client, "recover", {"handle": handle, "offset": None, "token_budget": None})
    assert recovered["text"] == FACT


@pytest.mark.parametrize(
    "odd",
    [True, False, 1.5, "", " ", "1.5", "five", "null", "[1]", -1, "-1", 10**30, "9" * 30, [1], {"a": 1}],
    ids=repr,
)
@pytest.mark.parametrize(
    ("tool", "name", "others"),
    [
        ("recall", "limit", {"query": "x"}),
        ("recall", "token_budget", {"query": "x"}),
        ("recover", "offset", {"handle": "ccr_0"}),
        ("recover", "token_budget", {"handle": "ccr_0"}),
    ],
)
async def test_an_odd_integer_is_refused_by_name(
    memory: Cavemem, tool: str, name: str, others: dict[str, Any], odd: object
) -> None:
    async with Client(build_server(lambda: memory)) as client:
        error, message = await refusal(client, tool, {**others, name: odd})
    assert error == INVALID
    assert message.startswith(f"{name}: ")
    assert "send" in message


STRINGS: list[tuple[str, str, dict[str, Any]]] = [
    ("remember", "text", {}),
    ("recall", "query", {}),
    ("supersede", "id", {"text": "y"}),
    ("supersede", "text", {"id": "mem_0"}),
    ("history", "id", {}),
    ("forget", "id", {}),
    ("recover", "handle", {}),
]


@pytest.mark.parametrize("odd", [None, 5, 1.5, True, ["x"], {"x": 1}, LONE, f"a{LONE}b"], ids=ascii)
@pytest.mark.parametrize(("tool", "name", "others"), STRINGS)
async def test_an_odd_string_is_refused_by_name(
    memory: Cavemem, tool: str, name: str, others: dict[str, Any], odd: object
) -> None:
    async with Client(build_server(lambda: memory)) as client:
        error, message = await refusal(client, tool, {**others, name: odd})
    assert error == INVALID
    assert message.startswith(f"{name}: ")
    assert "send" in message


@pytest.mark.parametrize("blank", ["", " \n\u3000"], ids=ascii)
async def test_a_blank_string_is_refused_except_as_a_query_which_recalls_nothing(memory: Cavemem, blank: str) -> None:
    memory.remember("some fact")
    async with Client(build_server(lambda: memory)) as client:
        for tool, name, others in STRINGS:
            if name == "query":
                result = await client.call_tool("cavemem_recall", {"query": blank})
                assert result.structured_content == {"hits": [], "basis": "inferred"}
            else:
                error, message = await refusal(client, tool, {**others, name: blank})
                assert error == INVALID
                assert message.startswith(f"{name}: must not be blank")


@pytest.mark.parametrize(("tool", "name", "others"), STRINGS)
async def test_a_missing_argument_is_named(client: Client, tool: str, name: str, others: dict[str, Any]) -> None:
    error, message = await refusal(client, tool, others)
    assert error == INVALID
    assert message == f"{name}: required argument is missing; send a string"


async def test_an_unknown_argument_is_named_with_those_there_are(client: Client) -> None:
    error, message = await refusal(client, "recall", {"query": "x", "top_k": 3})
    assert error == INVALID
    assert message == "top_k: unknown argument; send only query, limit, token_budget"


@pytest.mark.parametrize("name", [f"{SECRET} is the password", LONE, "x" * 41, ""], ids=ascii)
async def test_an_unknown_argument_that_looks_like_text_is_not_quoted(client: Client, name: str) -> None:
    error, message = await refusal(client, "recall", {"query": "x", name: SECRET})
    assert error == INVALID
    assert SECRET not in message
    assert message.startswith("(a name that is not quoted here): unknown argument")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("remember", {"text": SECRET + LONE}),
        ("remember", {"text": [SECRET]}),
        ("recall", {"query": "x", "limit": SECRET}),
        ("recall", {"query": {"x": SECRET}}),
        ("remember", {"text": SECRET * 20_000}),
        ("supersede", {"id": "mem_0", "text": SECRET}),
        ("recall", {"query": SECRET, "note": SECRET}),
    ],
)
async def test_neither_message_nor_log_repeats_what_was_sent(
    client: Client, caplog: pytest.LogCaptureFixture, tool: str, arguments: dict[str, Any]
) -> None:
    with caplog.at_level(logging.DEBUG):
        _, message = await refusal(client, tool, arguments)
    assert SECRET not in message
    assert SECRET not in "".join(record.getMessage() for record in caplog.records if record.name != "asyncio")


@pytest.mark.parametrize("tool", ["remember", "supersede"])
async def test_a_text_above_256_kib_is_refused_and_one_of_256_kib_is_not(client: Client, tool: str) -> None:
    await answer(client, "remember", {"text": FACT})
    others = {"id": memory_id(FACT)} if tool == "supersede" else {}
    error, _ = await refusal(client, tool, {**others, "text": "é" * 131_072 + "x"})
    assert error == "cave_memory_too_large"
    assert "error" not in await answer(client, tool, {**others, "text": "é" * 131_072})


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("supersede", {"id": "mem_0000000000000000", "text": "x"}),
        ("history", {"id": "mem_0000000000000000"}),
        ("recover", {"handle": "ccr_00000000000000000000000000000000"}),
    ],
)
async def test_an_operation_that_cannot_be_done_fails_under_its_own_id(
    client: Client, tool: str, arguments: dict[str, Any]
) -> None:
    error, _ = await refusal(client, tool, arguments)
    assert error == f"cave_{tool}_failed"


async def test_an_expired_text_cannot_be_remembered_and_the_message_names_the_current_one(client: Client) -> None:
    await answer(client, "remember", {"text": FACT})
    current = await answer(client, "supersede", {"id": memory_id(FACT), "text": "Webshop: never deploys"})
    error, message = await refusal(client, "remember", {"text": FACT})
    assert error == "cave_remember_failed"
    assert current["id"] in message
    error, message = await refusal(client, "supersede", {"id": memory_id(FACT), "text": "other"})
    assert error == "cave_supersede_failed"
    assert current["id"] in message


@pytest.mark.parametrize("name", ["recall", "cavemem_recal", ""])
async def test_an_unknown_tool_is_a_protocol_error(client: Client, name: str) -> None:
    with anyio.fail_after(5), pytest.raises(MCPError) as raised:
        await client.call_tool(name, {"query": "x"})
    assert raised.value.code == -32602
    assert "cavemem_recall" in raised.value.message


class _Defective(Cavemem):
    """A memory with a defect, whose exception quotes what it worked on."""

    def recall(self, query: str, *, limit: int = 5, token_budget: int | None = 2000) -> Recall:
        raise LookupError(query)


async def test_a_defect_is_an_internal_error_whose_place_is_logged_without_any_text(
    folder: Path, era: Era, caplog: pytest.LogCaptureFixture
) -> None:
    def open_defective() -> Cavemem:
        return _Defective(open_store(folder), RecoveryStore(folder))

    async with Client(build_server(open_defective), mode=era) as client:
        error, message = await refusal(client, "recall", {"query": SECRET})
        assert "error" not in await answer(client, "remember", {"text": FACT})
    assert error == "cave_internal_error"
    assert SECRET not in message
    assert "LookupError" in caplog.text
    assert "test_tools.py" in caplog.text
    assert SECRET not in caplog.text


def _failing_first(open_it: Callable[[], Cavemem], failures: int) -> Callable[[], Cavemem]:
    left = [failures]

    def open_memory() -> Cavemem:
        if left[0]:
            left[0] -= 1
            raise StoreError("the disk is away; plug it in")
        return open_it()

    return open_memory


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("remember", {"text": FACT}), ("recall", {"query": "x"}), ("forget", {"id": "mem_0"})],
)
async def test_a_memory_that_cannot_be_opened_fails_calls_until_it_can(
    folder: Path, era: Era, tool: str, arguments: dict[str, Any]
) -> None:
    opening = _failing_first(lambda: open_memory(folder), failures=2)  # ahead of the first call, and in it
    async with Client(build_server(opening), mode=era) as client:
        first = await answer(client, tool, arguments)
        second = await answer(client, tool, arguments)
        third = await answer(client, tool, arguments)
    assert {"error": f"cave_{tool}_failed", "message": "the disk is away; plug it in"} in (first, second)
    assert "error" not in third


async def test_the_memory_is_open_before_the_first_call_and_closed_at_the_end(folder: Path, era: Era) -> None:
    opened = anyio.Event()
    closed: list[bool] = []

    class Watched(Cavemem):
        def close(self) -> None:
            super().close()
            closed.append(True)

    def open_watched() -> Cavemem:
        memory = Watched(open_store(folder), RecoveryStore(folder))
        anyio.from_thread.run_sync(opened.set)
        return memory

    with anyio.fail_after(20):
        async with Client(build_server(open_watched), mode=era):
            await opened.wait()
            assert not closed
        assert closed == [True]
