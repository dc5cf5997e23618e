"""Tool calls whose every answer is checked against what the server advertises."""

import json
from typing import Any, Final, Literal, cast

import anyio
import jsonschema
from mcp import Client
from mcp.types import TextContent

Era = Literal["auto", "legacy"]
ERAS: Final[tuple[Era, ...]] = ("auto", "legacy")
CALL_SECONDS_MAX: Final = 60


async def answer(client: Client, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Call a tool and return its structured result, success or error."""
    with anyio.fail_after(CALL_SECONDS_MAX):
        schemas = {listed.name: listed.output_schema for listed in (await client.list_tools()).tools}
        result = await client.call_tool(f"cavemem_{tool}", arguments)
    structured = cast("dict[str, Any]", result.structured_content)
    schema = schemas[f"cavemem_{tool}"]
    assert schema is not None
    jsonschema.validate(structured, schema)
    (block,) = result.content
    assert isinstance(block, TextContent)
    assert block.text == json.dumps(structured, separators=(",", ":"), ensure_ascii=False)
    assert result.is_error == ("error" in structured)
    return structured


async def refusal(client: Client, tool: str, arguments: dict[str, Any]) -> tuple[str, str]:
    """Call a tool that must fail and return the error's id and message."""
    structured = await answer(client, tool, arguments)
    assert set(structured) == {"error", "message"}, structured
    return structured["error"], structured["message"]
