"""What a client reads before it calls anything: identity, instructions, the list of tools and what it costs."""

import json
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from mcp import Client

from cavemem_mcp import __version__, tokens
from cavemem_mcp.server import INSTRUCTIONS
from tests.server.answers import Era

GOLDEN = Path(__file__).parent.parent / "data" / "tools_list.json"
LISTED_TOKENS_MAX = 2500
READ_TOKENS_MAX = 900
INSTRUCTIONS_CHARACTERS_MAX = 1500
DESCRIPTION_WORDS_MAX = 60
INPUT_KEYWORDS = {"type", "properties", "required", "additionalProperties"}
PROPERTY_KEYWORDS = {"type", "minimum", "maximum", "default", "description"}


async def _listed(client: Client) -> dict[str, Any]:
    with anyio.fail_after(10):
        listed = await client.list_tools()
    return listed.model_dump(mode="json", by_alias=True, exclude_none=True)


def _tokens(value: object) -> int:
    return tokens.count(json.dumps(value, separators=(",", ":"), ensure_ascii=False))


async def test_the_list_of_tools_is_the_committed_one(client: Client) -> None:
    """To change it on purpose: write what `tools/list` returns into the file, and say why in the commit."""
    assert (await _listed(client))["tools"] == json.loads(GOLDEN.read_text())


async def test_the_list_of_tools_costs_no_more_than_allowed(client: Client) -> None:
    listed = await _listed(client)
    read = [{name: tool[name] for name in ("name", "description", "inputSchema")} for tool in listed["tools"]]
    assert _tokens(read) <= READ_TOKENS_MAX
    assert _tokens(listed) <= LISTED_TOKENS_MAX


async def test_input_schemas_are_plain_enough_for_every_client(client: Client) -> None:
    for tool in (await _listed(client))["tools"]:
        schema = tool["inputSchema"]
        assert set(schema) == INPUT_KEYWORDS
        assert schema["type"] == "object"
        assert schema["additionalProperties"] is False
        for argument in schema["properties"].values():
            assert set(argument) <= PROPERTY_KEYWORDS
            assert argument["type"] in {"string", "integer"}
            assert argument["description"]


async def test_every_output_schema_admits_the_errors_of_its_tool_and_no_other(client: Client) -> None:
    for tool in (await _listed(client))["tools"]:
        operation = tool["name"].removeprefix("cavemem_")
        forbidden = ["cave_forbidden"] if operation in {"remember", "supersede", "forget"} else []
        large = ["cave_memory_too_large", "cave_store_full"] if operation in {"remember", "supersede"} else []
        assert tool["outputSchema"]["type"] == "object"
        assert tool["outputSchema"]["properties"]["error"]["enum"] == [
            "cave_invalid_arguments",
            *forbidden,
            *large,
            f"cave_{operation}_failed",
            "cave_internal_error",
        ]


async def test_descriptions_and_instructions_keep_their_limits(client: Client) -> None:
    assert client.instructions == INSTRUCTIONS
    assert len(INSTRUCTIONS) <= INSTRUCTIONS_CHARACTERS_MAX
    for tool in (await _listed(client))["tools"]:
        assert len(tool["description"].split()) <= DESCRIPTION_WORDS_MAX


async def test_the_server_names_itself_and_its_version(client: Client) -> None:
    assert client.server_info is not None
    assert client.server_info.name == "cavemem"
    assert client.server_info.title == "Cave Memory"
    assert client.server_info.version == __version__


async def test_nothing_is_announced_that_never_happens(client: Client) -> None:
    capabilities = client.server_capabilities
    assert capabilities is not None
    assert capabilities.tools is not None
    assert not capabilities.tools.list_changed


@pytest.mark.parametrize("era", ["auto"], indirect=True)
async def test_a_client_may_keep_the_list_for_a_while(client: Client, era: Era) -> None:
    listed = await _listed(client)
    assert cast("int", listed["ttlMs"]) > 0
    assert listed["cacheScope"] == "public"
