"""Callers who share a server and not their memories."""

import json
import stat
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.types import ResourceTemplateReference, TextResourceContents

from cavemem_mcp import Cavemem, OperationFailedError, StoreError, open_memory
from cavemem_mcp.model import memory_id, recovery_handle
from cavemem_mcp.recovery import RecoveryStore
from cavemem_mcp.store import open_store
from cavemem_mcp.stores import StorePool, StoresBusyError
from tests.remote.server import RemoteServer, TokenFile, poll, remote_server
from tests.server.answers import Era, answer
from tests.server.processes import FACT, INITIALIZE, call, ping

LONG = "The gateway log. " * 2000
Shared = tuple[RemoteServer, dict[str, str]]


def _memory_folder(home: Path, store: str) -> Path:
    return home / "stores" / store / "mem"


async def test_callers_of_both_eras_find_only_what_is_theirs(shared: Shared, era: Era) -> None:
    server, secrets = shared
    async with server.mcp(secrets["alice"], era) as alice, server.mcp(secrets["bob"], era) as bob:
        await answer(alice, "remember", {"text": FACT})
        assert (await answer(bob, "recall", {"query": "webshop"}))["hits"] == []
        assert [hit["text"] for hit in (await answer(alice, "recall", {"query": "webshop"}))["hits"]] == [FACT]


def test_each_store_has_its_private_folder_and_the_default_one_is_not_made(shared: Shared) -> None:
    server, secrets = shared
    server.tool(secrets["bob"], "remember", text="bob's")
    folder = _memory_folder(server.home, "bob")
    assert stat.S_IMODE((folder / "mem.db").stat().st_mode) == 0o600
    for private in (folder, folder.parent, folder.parent.parent):
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert not (server.home / "mem").exists()


def _without_ids(answered: dict[str, Any], *ids: str) -> str:
    text = json.dumps(answered)
    for id in ids:
        text = text.replace(id, "ID")
    return text


def test_another_callers_ids_and_handles_are_answered_like_ones_that_never_were(shared: Shared) -> None:
    server, secrets = shared
    alice, bob = secrets["alice"], secrets["bob"]
    id, nothing = server.tool(alice, "remember", text=LONG)["id"], memory_id("never stored")
    handle = server.tool(alice, "recall", query="gateway", token_budget=10)["hits"][0]["recovery_handle"]
    for tool, arguments, other in (
        ("history", {"id": id}, {"id": nothing}),
        ("supersede", {"id": id, "text": "new"}, {"id": nothing, "text": "new"}),
        ("forget", {"id": id}, {"id": nothing}),
        ("recover", {"handle": handle}, {"handle": recovery_handle("never stored")}),
    ):
        assert _without_ids(server.tool(bob, tool, **arguments), id) == _without_ids(
            server.tool(bob, tool, **other), nothing
        )
    assert server.tool(alice, "recover", handle=handle)["text"] == LONG
    assert len(server.tool(alice, "history", id=id)["history"]) == 1


def test_the_same_fact_of_two_callers_is_two_memories(shared: Shared) -> None:
    server, secrets = shared
    text = "Both know this."
    mine, theirs = (server.tool(secrets[name], "remember", text=text) for name in ("alice", "bob"))
    assert mine["id"] == theirs["id"]
    assert mine["created_at"] != theirs["created_at"]
    assert server.tool(secrets["bob"], "forget", id=mine["id"]) == {"forgotten": True}
    assert server.recalled(secrets["alice"], "both know") == [text]


def test_a_session_id_of_another_caller_opens_nothing(shared: Shared) -> None:
    server, secrets = shared
    initialized = server.post(secrets["alice"], INITIALIZE)
    session = initialized.headers.get("mcp-session-id", "0" * 32)
    response = server.post(secrets["bob"], call("recall", {"query": "gateway"}), {"Mcp-Session-Id": session})
    assert response.json()["result"]["structuredContent"]["hits"] == []


async def _read(client: Client, uri: str) -> str:
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    return content.text


async def _refusal(client: Client, uri: str) -> str:
    with pytest.raises(MCPError) as refused:
        await client.read_resource(uri)
    return refused.value.error.model_dump_json()


async def _completed(client: Client, value: str) -> list[str]:
    reference = ResourceTemplateReference(type="ref/resource", uri="cavemem://memory/{id}")
    return (await client.complete(reference, {"name": "id", "value": value})).completion.values


async def _lists(client: Client) -> str:
    lists = [
        await client.list_tools(),
        await client.list_resources(),
        await client.list_resource_templates(),
        await client.list_prompts(),
        await client.get_prompt("remember_this_session"),
        await client.get_prompt("what_do_you_know", {"topic": "gateway"}),
    ]
    return "".join(listed.model_dump_json(exclude={"meta"}) for listed in lists)


async def test_resources_completions_and_prompts_show_a_caller_only_what_is_theirs(
    server: RemoteServer, tokens: TokenFile, era: Era
) -> None:
    """Carol may only read, but she reads what is alice's."""
    secrets = tokens.secrets
    async with (
        server.mcp(secrets["alice"], era) as alice,
        server.mcp(secrets["bob"], era) as bob,
        server.mcp(secrets["carol"], era) as carol,
    ):
        id = (await answer(alice, "remember", {"text": LONG}))["id"]
        (hit,) = (await answer(alice, "recall", {"query": "gateway", "token_budget": 10}))["hits"]
        memory, original = f"cavemem://memory/{id}", f"cavemem://recovery/{hit['recovery_handle']}"
        for owner in (alice, carol):
            assert LONG in await _read(owner, memory)
            assert await _read(owner, original) == LONG
            assert await _completed(owner, id[:8]) == await _completed(owner, "") == [id]
            assert json.loads(await _read(owner, "cavemem://status"))["largest"]["id"] == id
        nothing = "never stored"
        for uri, name, other in (
            (memory, id, memory_id(nothing)),
            (original, hit["recovery_handle"], recovery_handle(nothing)),
        ):
            missing = (await _refusal(bob, uri.replace(name, other))).replace(other, name)
            assert await _refusal(bob, uri) == missing
            assert "-32602" in missing
        assert await _completed(bob, id[:8]) == await _completed(bob, "") == []
        status = await _read(bob, "cavemem://status")
        assert (json.loads(status)["current"], json.loads(status)["largest"]) == (0, None)
        assert str(server.home) not in status + await _read(alice, "cavemem://status")
        assert await _lists(alice) == await _lists(bob) == await _lists(carol)
        assert id not in await _lists(alice)


def test_a_callers_mistakes_and_failures_say_nothing_of_another_store(server: RemoteServer, tokens: TokenFile) -> None:
    """Not its name, nor its folder, nor that somebody else stored the same fact or is full or broken."""
    alice, bob = tokens.secrets["alice"], tokens.secrets["bob"]
    id = server.tool(alice, "remember", text=FACT)["id"]
    server.tool(alice, "supersede", id=id, text="Webshop: deploys on Monday")
    assert "error" not in server.tool(bob, "remember", text=FACT), "expired for alice, new for bob"
    for tool, arguments in (
        ("supersede", {"id": memory_id("Webshop: deploys on Monday"), "text": "x"}),
        ("history", {"id": memory_id("Webshop: deploys on Monday")}),
        ("recover", {"handle": recovery_handle("Webshop: deploys on Monday")}),
        ("remember", {"text": ""}),
        ("recall", {"query": "x", "limit": -1}),
    ):
        said = json.dumps(server.tool(bob, tool, **arguments))
        assert "error" in said
        assert "alice" not in said
        assert "Monday" not in said
        assert str(server.home) not in said


def test_tokens_of_one_store_share_it_and_a_reader_cannot_change_it(shared: Shared) -> None:
    server, secrets = shared
    id = server.tool(secrets["alice"], "remember", text="Shared: the door code")["id"]
    assert server.recalled(secrets["carol"], "door code") == ["Shared: the door code"]
    for tool, arguments in (
        ("remember", {"text": "carol's"}),
        ("supersede", {"id": id, "text": "carol's"}),
        ("forget", {"id": id}),
    ):
        refused = server.tool(secrets["carol"], tool, **arguments)
        assert refused["error"] == "cave_forbidden"
        assert "may write" in refused["message"]
    assert len(server.tool(secrets["carol"], "history", id=id)["history"]) == 1


async def test_the_refusal_of_a_write_is_part_of_what_is_advertised(shared: Shared, era: Era) -> None:
    server, secrets = shared
    async with server.mcp(secrets["carol"], era) as carol:
        assert (await answer(carol, "remember", {"text": "carol's"}))["error"] == "cave_forbidden"


def test_no_more_stores_are_open_than_may_be_and_all_are_served(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.toml")
    names = [f"agent-{number}" for number in range(6)]
    for name in names:
        tokens.add(name)
    with remote_server(
        tmp_path / "home", "--auth-tokens", str(tokens.path), settings={"CAVEMAN_MAX_OPEN_STORES": "2"}
    ) as server:
        for name in names * 2:
            server.tool(tokens.secrets[name], "remember", text=f"{name} was here")
        assert len(_open_stores(server)) <= 2
        for name in names:
            assert server.recalled(tokens.secrets[name], "here") == [f"{name} was here"]


def test_a_store_that_nobody_uses_is_closed(tmp_path: Path, tokens: TokenFile) -> None:
    with remote_server(tmp_path / "home", "--auth-tokens", str(tokens.path), "--store-idle-timeout", "1") as server:
        server.tool(tokens.secrets["alice"], "remember", text=FACT)
        assert _open_stores(server) == {"alice"}
        poll(lambda: not _open_stores(server))
        assert server.recalled(tokens.secrets["alice"], "webshop") == [FACT]


def _open_stores(server: RemoteServer) -> set[str]:
    found: set[str] = set()
    for descriptor in Path(f"/proc/{server.process.pid}/fd").iterdir():
        try:
            target = descriptor.readlink()
        except FileNotFoundError:
            continue
        if target.name == "mem.db":
            found.add(target.parent.parent.name)
    return found


def test_a_store_that_cannot_be_opened_fails_for_its_own_callers_alone(shared: Shared, tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.toml")
    broken, sound = tokens.add("broken"), tokens.add("sound")
    folder = _memory_folder(tmp_path / "home", "broken")
    folder.mkdir(parents=True)
    (folder / "mem.db").write_bytes(b"no database " * 1000)
    with remote_server(tmp_path / "home", "--auth-tokens", str(tokens.path)) as server:
        assert server.tool(broken, "remember", text=FACT)["error"] == "cave_remember_failed"
        assert "error" not in server.tool(sound, "remember", text=FACT)
        assert server.post(broken, ping(1)).status_code == 200


class _Watched:
    """Opens memories and counts them."""

    def __init__(self) -> None:
        self.opened: list[Path] = []

    def __call__(self, folder: Path) -> Cavemem:
        self.opened.append(folder)
        return open_memory(folder)


def _pool(home: Path, opens: _Watched, open_max: int) -> StorePool:
    return StorePool(home, opens, open_max=open_max, idle_seconds_max=60, keeps_default=False)


async def test_a_store_in_use_is_not_closed_for_another(tmp_path: Path) -> None:
    pool = _pool(tmp_path, _Watched(), 1)
    async with pool.lease("a"):
        pool.get().remember(FACT)
        with pytest.raises(StoresBusyError):
            async with pool.lease("b"):
                raise AssertionError("unreachable")
        assert pool.get().recall("webshop").hits
    async with pool.lease("b"):
        assert not pool.get().recall("webshop").hits
    pool.close()


async def test_many_requests_for_one_store_open_it_once(tmp_path: Path) -> None:
    opens = _Watched()
    pool = _pool(tmp_path, opens, 1)

    async def use() -> None:
        async with pool.lease("a"):
            await anyio.to_thread.run_sync(lambda: pool.get().recall("x"))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(use)
    assert opens.opened == [tmp_path / "stores" / "a" / "mem"]
    pool.close()


async def test_requests_for_more_stores_than_may_be_open_take_turns(tmp_path: Path) -> None:
    pool = _pool(tmp_path, _Watched(), 2)
    busy = 0

    async def use(number: int) -> None:
        nonlocal busy
        try:
            async with pool.lease(f"s{number % 5}"):
                await anyio.to_thread.run_sync(lambda: pool.get().remember(f"fact {number}"))
        except StoresBusyError:
            busy += 1

    with anyio.fail_after(30):
        for start in range(0, 40, 2):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(use, start)
                tasks.start_soon(use, start + 1)
    assert busy == 0
    assert len(pool.sizes()) <= 2
    assert all(pool.sizes().values())
    pool.close()


async def test_a_pool_that_is_closed_opens_nothing_more(tmp_path: Path) -> None:
    pool = _pool(tmp_path, _Watched(), 2)
    async with pool.lease("a"):
        pool.get()
        await anyio.to_thread.run_sync(pool.close)
        with pytest.raises(StoreError, match="shutting down"):
            pool.get()


async def test_a_store_that_cannot_be_closed_does_not_keep_the_others_open(tmp_path: Path) -> None:
    class Stubborn(Cavemem):
        def close(self) -> None:
            super().close()
            raise StoreError("mem.db: the disk failed")

    opened: list[Cavemem] = []

    def opens(folder: Path) -> Cavemem:
        opened.append(Stubborn(open_store(folder), RecoveryStore(folder)))
        return opened[-1]

    pool = StorePool(tmp_path, opens, open_max=2, idle_seconds_max=60, keeps_default=False)
    for name in ("a", "b"):
        async with pool.lease(name):
            pool.get()
    pool.close()
    for memory in opened:
        with pytest.raises(OperationFailedError, match="was closed"):
            memory.recall("x")


def test_writers_of_several_stores_do_not_wait_for_each_other(tmp_path: Path, tokens: TokenFile) -> None:
    """The write lock of one store is held for the whole test; another's callers do not notice."""
    import apsw

    with remote_server(tmp_path / "home", "--auth-tokens", str(tokens.path)) as server:
        server.tool(tokens.secrets["alice"], "remember", text="first")
        path = _memory_folder(server.home, "alice") / "mem.db"
        with closing(apsw.Connection(str(path))) as connection:
            connection.execute("BEGIN IMMEDIATE")
            waiting = threading.Thread(
                target=server.post, args=(tokens.secrets["alice"], call("remember", {"text": FACT}))
            )
            waiting.start()
            for number in range(20):
                assert "error" not in server.tool(tokens.secrets["bob"], "remember", text=f"fact {number}")
            assert waiting.is_alive()
            connection.execute("ROLLBACK")
        waiting.join()
