"""The same session as the other clients of this folder, with the Python SDK 1.x, which a virtual environment has."""

import asyncio
import hashlib
import json
import os
from datetime import timedelta

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client
from mcp.shared.exceptions import McpError


def connect(target):
    if "url" in target:
        return streamablehttp_client(target["url"], headers=target["headers"])
    return stdio_client(StdioServerParameters(command=target["command"], args=target["args"], env=target["env"]))


async def call(session, tool, arguments):
    result = await session.call_tool(f"cavemem_{tool}", arguments)
    structured = result.structuredContent
    assert json.loads(result.content[0].text) == structured
    assert result.isError == ("error" in structured)
    return structured


async def main():
    async with (
        connect(json.loads(os.environ["PEER_TARGET"])) as streams,
        ClientSession(streams[0], streams[1], read_timeout_seconds=timedelta(seconds=60)) as session,
    ):
        server = await session.initialize()
        listed = await session.list_tools()
        hit = (await call(session, "recall", {"query": "gateway", "token_budget": 50}))["hits"][0]
        recovered = await call(session, "recover", {"handle": hit["recovery_handle"]})
        try:
            unknown = (await session.call_tool("cavemem_unknown", {})).isError
        except McpError as error:
            unknown = error.error.code
        print(
            json.dumps(
                {
                    "version": server.protocolVersion,
                    "tools": [tool.name for tool in listed.tools],
                    "id": (await call(session, "remember", {"text": "Peers agree"}))["id"],
                    "error": (await call(session, "recall", {"query": "gateway", "limit": -1}))["error"],
                    "unknown": unknown,
                    "recovered": hashlib.sha256(recovered["text"].encode()).hexdigest(),
                }
            )
        )


asyncio.run(main())
