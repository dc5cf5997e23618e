"""No state between requests: restarts and replicas are not noticed, and every protocol version is served."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.types import CallToolResult

from tests.remote.server import RemoteServer, TokenFile, poll, remote_server, sdk_client
from tests.server.answers import Era, answer
from tests.server.processes import call

VERSIONS = ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]


async def test_a_client_goes_on_after_a_restart_without_connecting_again(
    tmp_path: Path, tokens: TokenFile, era: Era
) -> None:
    arguments = ("--auth-tokens", str(tokens.path))
    with remote_server(tmp_path / "home", *arguments) as server:
        async with sdk_client(server.url, tokens.secrets["alice"], era) as client:
            before = await answer(client, "remember", {"text": "Known before the restart"})
            assert server.stop() == 143
            with remote_server(tmp_path / "home", *arguments, port=server.port):
                assert await answer(client, "remember", {"text": "Known before the restart"}) == before
                found = await answer(client, "recall", {"query": "known restart"})
                assert [hit["text"] for hit in found["hits"]] == ["Known before the restart"]


async def test_two_servers_on_one_store_give_the_same_answers(tmp_path: Path, tokens: TokenFile, era: Era) -> None:
    """Each call goes to the other server than the one before, as round robin does it."""
    arguments, secret = ("--auth-tokens", str(tokens.path)), tokens.secrets["alice"]
    with (
        remote_server(tmp_path / "home", *arguments) as one,
        remote_server(tmp_path / "home", *arguments) as two,
    ):
        async with sdk_client(one.url, secret, era) as first, sdk_client(two.url, secret, era) as second:
            stored: dict[str, Any] = {}
            for number in range(10):
                writer, reader = (first, second) if number % 2 else (second, first)
                stored = await answer(writer, "remember", {"text": f"Replica fact {number} about topic{number}"})
                found = await answer(reader, "recall", {"query": f"topic{number}"})
                assert [hit["id"] for hit in found["hits"]] == [stored["id"]]
                assert await answer(writer, "recall", {"query": f"topic{number}"}) == found
            await answer(first, "forget", {"id": stored["id"]})
            assert (await answer(second, "recall", {"query": "topic9"}))["hits"] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_every_protocol_version_is_served_at_one_address_with_json(
    shared: tuple[RemoteServer, dict[str, str]], version: str
) -> None:
    server, secrets = shared
    request = call("recall", {"query": "anything"})
    headers = {"MCP-Protocol-Version": version}
    if version == "2026-07-28":
        headers |= {"Mcp-Method": "tools/call", "Mcp-Name": "cavemem_recall"}
        request["params"]["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    answered = server.post(secrets["bob"], request, headers)
    assert answered.status_code == 200
    assert answered.headers["content-type"].startswith("application/json")
    assert "mcp-session-id" not in answered.headers
    result = CallToolResult.model_validate(answered.json()["result"])
    assert result.is_error is False
    assert result.structured_content == {"hits": [], "basis": "inferred"}


@pytest.mark.parametrize("version", VERSIONS[:3])
def test_a_handshake_answers_with_the_version_that_was_asked_for(
    shared: tuple[RemoteServer, dict[str, str]], version: str
) -> None:
    server, secrets = shared
    parameters = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": parameters}
    assert server.post(secrets["bob"], message).json()["result"]["protocolVersion"] == version


def test_a_connection_that_the_restart_broke_is_the_only_thing_that_breaks(tmp_path: Path) -> None:
    with remote_server(tmp_path) as server, server.client() as client:
        body = json.dumps(call("remember", {"text": "Kept alive"}))
        first = client.post("/mcp", content=body).json()
        server.stop()
        with pytest.raises(httpx2.TransportError):
            client.post("/mcp", content=body)
        with remote_server(tmp_path, port=server.port):
            poll(lambda: client.post("/mcp", content=body).json() == first)
