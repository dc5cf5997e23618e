"""Resources, prompts and completions, through a client in each protocol era."""

import json
import logging
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.types import PromptReference, ResourceTemplateReference, TextContent, TextResourceContents

from cavemem_mcp import Cavemem, StoreError, open_memory
from cavemem_mcp.model import memory_id, recovery_handle
from cavemem_mcp.server import build_server
from tests.server.answers import Era, answer

FACT = "Zoë reviews pull requests before ten"
LATER = "Zoë reviews pull requests after lunch"
SECRET = "zebrawood"


async def _read(client: Client, uri: str) -> TextResourceContents:
    with anyio.fail_after(10):
        (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    assert content.uri == uri
    return content


async def _refused(client: Client, uri: str) -> MCPError:
    with anyio.fail_after(10), pytest.raises(MCPError) as raised:
        await client.read_resource(uri)
    return raised.value


async def test_a_memory_is_read_with_its_dates(client: Client) -> None:
    old = await answer(client, "remember", {"text": FACT})
    new = await answer(client, "supersede", {"id": old["id"], "text": LATER})
    content = await _read(client, f"cavemem://memory/{old['id']}")
    assert content.mime_type == "text/plain"
    assert content.text.splitlines() == [
        f"id: {old['id']}",
        f"created_at: {old['created_at']}",
        f"valid_from: {old['created_at']}",
        f"valid_until: {new['created_at']}",
        f"superseded_by: {new['id']}",
        "",
        FACT,
    ]


async def test_an_original_is_read_to_the_byte(client: Client) -> None:
    text = "  nul \0, crlf\r\n" + "payment gateway\n" * 3000 + "\ufeff Zoë \u2028\n"
    await answer(client, "remember", {"text": text})
    content = await _read(client, f"cavemem://recovery/{recovery_handle(text)}")
    assert (content.text, content.mime_type) == (text, "text/plain")


async def test_the_status_counts_and_names_no_path(client: Client, folder: Path) -> None:
    await answer(client, "remember", {"text": FACT})
    content = await _read(client, "cavemem://status")
    assert content.mime_type == "application/json"
    status = json.loads(content.text)
    assert (status["current"], status["expired"], status["chains"]) == (1, 0, 1)
    assert status["largest"] == {"id": memory_id(FACT), "bytes": len(FACT.encode())}
    assert str(folder) not in content.text


@pytest.mark.parametrize(
    "uri",
    [
        "cavemem://memory/mem_0000000000000000",
        "cavemem://memory/",
        "cavemem://memory/../status",
        "cavemem://recovery/ccr_0",
        "cavemem://recovery/",
        "cavemem://nothing",
        "file:///etc/passwd",
    ],
)
async def test_what_is_not_there_is_a_protocol_error_without_a_traceback(
    client: Client, caplog: pytest.LogCaptureFixture, uri: str
) -> None:
    error = await _refused(client, uri)
    assert (error.code, error.error.data) == (-32602, {"uri": uri})
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_forgotten_memory_is_no_resource_any_more(client: Client) -> None:
    id = (await answer(client, "remember", {"text": FACT}))["id"]
    await answer(client, "forget", {"id": id})
    assert (await _refused(client, f"cavemem://memory/{id}")).code == -32602
    assert (await _refused(client, f"cavemem://recovery/{recovery_handle(FACT)}")).code == -32602


def _unusable() -> Cavemem:
    raise StoreError("mem.db is not a database")


async def test_a_store_that_cannot_be_opened_says_why(era: Era) -> None:
    async with Client(build_server(_unusable), mode=era) as client:
        for uri in ("cavemem://status", "cavemem://memory/mem_0", "cavemem://recovery/ccr_0"):
            error = await _refused(client, uri)
            assert error.code == -32603
            assert "not a database" in error.message
        with anyio.fail_after(10), pytest.raises(MCPError, match="not a database"):
            await _completions(client, "mem_")


class _Defective(Cavemem):
    @property
    def store(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - that is the defect
        raise LookupError(SECRET)


async def test_a_defect_is_logged_without_what_it_says(
    folder: Path, era: Era, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(open_memory(folder)) as memory:
        defective = _Defective(memory.store, memory.recovery)
        async with Client(build_server(lambda: defective), mode=era) as client:
            assert (await _refused(client, "cavemem://status")).code == -32603
            with anyio.fail_after(10), pytest.raises(MCPError):
                await _completions(client, "mem_")
    assert caplog.text.count("LookupError") >= 2
    assert SECRET not in caplog.text


async def _completions(client: Client, value: str, uri: str = "cavemem://memory/{id}", name: str = "id") -> list[str]:
    reference = ResourceTemplateReference(type="ref/resource", uri=uri)
    completion = (await client.complete(reference, {"name": name, "value": value})).completion
    assert completion.has_more is False
    return completion.values


async def test_ids_are_completed_newest_first_and_only_current_ones(client: Client) -> None:
    old = await answer(client, "remember", {"text": FACT})
    other = await answer(client, "remember", {"text": "Another fact"})
    new = await answer(client, "supersede", {"id": old["id"], "text": LATER})
    assert await _completions(client, "") == [new["id"], other["id"]]
    assert await _completions(client, new["id"][:9]) == [new["id"]]
    assert await _completions(client, "%") == []
    assert await _completions(client, "", name="other") == []
    assert await _completions(client, "", uri="cavemem://recovery/{handle}") == []


async def test_nothing_else_has_completions(client: Client) -> None:
    reference = PromptReference(type="ref/prompt", name="what_do_you_know")
    assert (await client.complete(reference, {"name": "topic", "value": "a"})).completion.values == []


async def test_more_ids_than_one_answer_holds_are_said_to_be_there(folder: Path, era: Era) -> None:
    with closing(open_memory(folder)) as memory:
        for number in range(101):
            memory.remember(f"fact number {number}")
    async with Client(build_server(lambda: open_memory(folder)), mode=era) as client:
        reference = ResourceTemplateReference(type="ref/resource", uri="cavemem://memory/{id}")
        completion = (await client.complete(reference, {"name": "id", "value": "mem_"})).completion
    assert (len(completion.values), completion.has_more) == (100, True)
    assert completion.values[0] == memory_id("fact number 100")


async def test_everything_readable_is_listed(client: Client) -> None:
    assert [resource.uri for resource in (await client.list_resources()).resources] == ["cavemem://status"]
    templates = (await client.list_resource_templates()).resource_templates
    assert [template.uri_template for template in templates] == [
        "cavemem://memory/{id}",
        "cavemem://recovery/{handle}",
    ]
    prompts = (await client.list_prompts()).prompts
    assert [prompt.name for prompt in prompts] == ["remember_this_session", "what_do_you_know"]
    assert all(listed.title and listed.description for listed in [*prompts, *templates])


async def _prompt(client: Client, name: str, arguments: dict[str, str] | None = None) -> str:
    with anyio.fail_after(10):
        (message,) = (await client.get_prompt(name, arguments)).messages
    assert message.role == "user"
    assert isinstance(message.content, TextContent)
    return message.content.text


async def test_prompts_name_what_to_do_and_quote_the_topic_as_it_is(client: Client) -> None:
    assert "supersede" in await _prompt(client, "remember_this_session")
    assert "\n---\nthe {webshop} deploys\n---\n" in await _prompt(
        client, "what_do_you_know", {"topic": " the {webshop} deploys "}
    )


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("recall", {}),
        ("what_do_you_know", None),
        ("what_do_you_know", {}),
        ("what_do_you_know", {"topic": " "}),
        ("what_do_you_know", {"topic": SECRET, SECRET: "x"}),
        ("remember_this_session", {SECRET: SECRET}),
    ],
)
async def test_a_prompt_that_cannot_be_given_is_a_protocol_error_without_a_traceback(
    client: Client, caplog: pytest.LogCaptureFixture, name: str, arguments: dict[str, str] | None
) -> None:
    with anyio.fail_after(5), pytest.raises(MCPError) as raised:
        await client.get_prompt(name, arguments)
    assert raised.value.code == -32602
    assert SECRET not in raised.value.message
    assert ("is missing" in raised.value.message) is (name == "what_do_you_know" and not arguments)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
