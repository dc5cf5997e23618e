"""The seven promises and the semantics of each tool, seen from outside: the real server in both protocol eras."""

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from cavemem_mcp import tokens
from cavemem_mcp.model import memory_id, recovery_handle
from tests.live import answer, bytes_under, cavemem, error, recalled, stdio_client
from tests.server.answers import ERAS

LONG = "\n".join(f"{number:05} the quay crane moved container {number * 7919}" for number in range(4000))
SIZE_MAX = 256 * 1024


@pytest.fixture(params=ERAS)
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Client]:
    async with stdio_client(tmp_path, request.param) as client:
        yield client


def stored_texts(home: Path) -> list[str]:
    with closing(sqlite3.connect(home / "mem" / "mem.db")) as connection:
        return [text for (text,) in connection.execute("SELECT text FROM memories ORDER BY created_at")]


async def test_byte_safe_write_raw_text_is_on_disk_once_remember_answers(client: Client, tmp_path: Path) -> None:
    text = "  raw \x00 text\r\n" + LONG[:5000]
    await answer(client, "remember", text=text)
    assert stored_texts(tmp_path) == [text]
    await answer(client, "recall", query="crane", token_budget=50)
    assert stored_texts(tmp_path) == [text]


async def test_bounded_recall_two_thousand_tokens_unless_the_caller_says_otherwise(client: Client) -> None:
    await answer(client, "remember", text=LONG)
    (hit,) = (await answer(client, "recall", query="crane"))["hits"]
    assert hit["tokens_added"] == tokens.count(hit["text"]) <= 2000
    assert hit["recovery_handle"] == recovery_handle(LONG)
    (small,) = (await answer(client, "recall", query="crane", token_budget=1))["hits"]
    assert small["tokens_added"] <= 1


async def test_bounded_remember_refuses_more_than_256_kib_and_stores_nothing(client: Client, tmp_path: Path) -> None:
    assert await error(client, "remember", text="é" * (SIZE_MAX // 2) + "x") == "cave_memory_too_large"
    assert await recalled(client, "x") == []
    largest = "é" * (SIZE_MAX // 2)
    stored = await answer(client, "remember", text=largest)
    assert stored_texts(tmp_path) == [largest]
    assert await error(client, "supersede", id=stored["id"], text="x" * (SIZE_MAX + 1)) == "cave_memory_too_large"
    assert stored_texts(tmp_path) == [largest]


async def test_fail_toward_nothing_no_shared_term_or_a_low_score_recalls_nothing(client: Client) -> None:
    for number in range(20):
        await answer(client, "remember", text=f"common note {number}")
    assert await answer(client, "recall", query="airport") == {"hits": [], "basis": "inferred"}
    assert await answer(client, "recall", query="common") == {"hits": [], "basis": "inferred"}
    assert await recalled(client, "common 7") == ["common note 7"]


async def test_current_only_recall_superseded_versions_are_in_history_only(client: Client) -> None:
    old = await answer(client, "remember", text="The harbour closes at nine")
    new = await answer(client, "supersede", id=old["id"], text="The harbour closes at ten")
    assert new == {
        "id": memory_id("The harbour closes at ten"),
        "supersedes": old["id"],
        "created_at": new["created_at"],
        "basis": "inferred",
    }
    assert await recalled(client, "harbour nine") == ["The harbour closes at ten"]
    versions = (await answer(client, "history", id=new["id"]))["history"]
    assert versions == (await answer(client, "history", id=old["id"]))["history"]
    assert versions == [
        {
            "id": old["id"],
            "text": "The harbour closes at nine",
            "created_at": old["created_at"],
            "valid_from": old["created_at"],
            "valid_until": new["created_at"],
            "superseded_by": new["id"],
        },
        {
            "id": new["id"],
            "text": "The harbour closes at ten",
            "created_at": new["created_at"],
            "valid_from": new["created_at"],
            "supersedes": old["id"],
        },
    ]


async def test_inferred_and_reversible_every_cut_hit_recovers_to_the_byte(client: Client) -> None:
    text = LONG + "\r\n🧠 \u2028 end\n"
    await answer(client, "remember", text=text)
    found = await answer(client, "recall", query="crane")
    assert found["basis"] == found["hits"][0]["basis"] == "inferred"
    handle = found["hits"][0]["recovery_handle"]
    whole = await answer(client, "recover", handle=handle)
    assert whole == {"handle": handle, "text": text, "bytes": len(text.encode()), "basis": "inferred"}
    pages: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = await answer(client, "recover", handle=handle, offset=offset, token_budget=20_000)
        assert page["offset"] == offset
        pages.append(page["text"])
        offset = page.get("next_offset")
    assert len(pages) > 1
    assert "".join(pages) == text


async def test_remembering_again_is_the_same_memory(client: Client, tmp_path: Path) -> None:
    first = await answer(client, "remember", text="one fact")
    assert await answer(client, "remember", text="one fact") == first
    assert stored_texts(tmp_path) == ["one fact"]


async def test_a_fact_that_returns_to_an_old_value_is_refused_with_the_way_out(client: Client) -> None:
    old = await answer(client, "remember", text="port is 80")
    new = await answer(client, "supersede", id=old["id"], text="port is 8080")
    refused = await answer(client, "remember", text="port is 80")
    assert refused["error"] == "cave_remember_failed"
    assert new["id"] in refused["message"]
    assert f"forget {old['id']}" in refused["message"]
    assert await answer(client, "forget", id=old["id"]) == {"forgotten": True}
    back = await answer(client, "supersede", id=new["id"], text="port is 80")
    assert back["id"] == old["id"]


async def test_supersede_needs_a_current_target_another_text_and_an_unused_id(client: Client) -> None:
    first = await answer(client, "remember", text="one")
    other = await answer(client, "remember", text="other")
    second = await answer(client, "supersede", id=first["id"], text="two")
    refused = await answer(client, "supersede", id=first["id"], text="three")
    assert refused["error"] == "cave_supersede_failed"
    assert f"superseded by {second['id']}; supersede that one" in refused["message"]
    for id, text in [("mem_0", "x"), (second["id"], "two"), (second["id"], "other"), (second["id"], "one")]:
        assert await error(client, "supersede", id=id, text=text) == "cave_supersede_failed"
    assert [v["text"] for v in (await answer(client, "history", id=first["id"]))["history"]] == ["one", "two"]
    assert [v["id"] for v in (await answer(client, "history", id=other["id"]))["history"]] == [other["id"]]


async def test_history_of_an_unknown_or_broken_or_cyclic_chain_is_an_error(client: Client, tmp_path: Path) -> None:
    assert await error(client, "history", id="mem_unknown") == "cave_history_failed"
    first = await answer(client, "remember", text="one")
    second = await answer(client, "supersede", id=first["id"], text="two")
    with closing(sqlite3.connect(tmp_path / "mem" / "mem.db")) as connection, connection:
        connection.execute("UPDATE memories SET superseded_by = ? WHERE id = ?", (first["id"], second["id"]))
    assert await error(client, "history", id=first["id"]) == "cave_history_failed"
    with closing(sqlite3.connect(tmp_path / "mem" / "mem.db")) as connection, connection:
        connection.execute("DELETE FROM memories WHERE id = ?", (first["id"],))
    assert await error(client, "history", id=second["id"]) == "cave_history_failed"


async def test_forget_deletes_one_version_and_joins_its_neighbours(client: Client) -> None:
    assert await answer(client, "forget", id="mem_unknown") == {"forgotten": False}
    first = await answer(client, "remember", text="one")
    second = await answer(client, "supersede", id=first["id"], text="two")
    third = await answer(client, "supersede", id=second["id"], text="three")
    assert await answer(client, "forget", id=second["id"]) == {"forgotten": True}
    assert await answer(client, "forget", id=second["id"]) == {"forgotten": False}
    earlier, later = (await answer(client, "history", id=third["id"]))["history"]
    assert (earlier["superseded_by"], later["supersedes"]) == (third["id"], first["id"])
    await answer(client, "forget", id=third["id"])
    assert await recalled(client, "one") == []


async def test_forgetting_is_real_in_every_file_and_every_process(client: Client, tmp_path: Path) -> None:
    text = "zanzibar " + LONG
    stored = await answer(client, "remember", text=text)
    async with stdio_client(tmp_path) as other:
        (hit,) = (await answer(other, "recall", query="zanzibar"))["hits"]
        assert (await answer(client, "recall", query="zanzibar"))["hits"] == [hit]
        assert await answer(client, "forget", id=stored["id"]) == {"forgotten": True}
        for reader in (client, other):
            assert await error(reader, "recover", handle=hit["recovery_handle"]) == "cave_recover_failed"
            assert await error(reader, "history", id=stored["id"]) == "cave_history_failed"
            assert await recalled(reader, "zanzibar") == []
        left = bytes_under(tmp_path)
        assert b"zanzibar" not in left
        assert b"quay crane" not in left


async def test_an_id_collision_is_refused_and_nothing_swallowed(client: Client, tmp_path: Path) -> None:
    await answer(client, "remember", text="first")
    with closing(sqlite3.connect(tmp_path / "mem" / "mem.db")) as connection, connection:
        planted = (memory_id("wanted"), "planted", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z")
        connection.execute("INSERT INTO memories (id, text, created_at, valid_from) VALUES (?, ?, ?, ?)", planted)
    assert await error(client, "remember", text="wanted") == "cave_remember_failed"
    assert await error(client, "supersede", id=memory_id("first"), text="wanted") == "cave_supersede_failed"
    assert await recalled(client, "planted") == ["planted"]
    assert await error(client, "recover", handle=recovery_handle("wanted")) == "cave_recover_failed"


async def test_the_zero_sentinel_lifts_the_cap_and_an_omitted_budget_never_does(client: Client) -> None:
    for number in range(12):
        await answer(client, "remember", text=f"unrelated {number}")
    for number in range(7):
        await answer(client, "remember", text=f"harbour {number}\n" + LONG[: 20_000 + number])
    capped = await answer(client, "recall", query="harbour")
    assert len(capped["hits"]) == 1
    assert capped["omitted"] == 4
    assert capped["more"] is True
    everything = await answer(client, "recall", query="harbour", token_budget=0)
    assert len(everything["hits"]) == 5
    assert "omitted" not in everything
    assert all("recovery_handle" not in hit for hit in everything["hits"])
    assert len((await answer(client, "recall", query="harbour", token_budget=0, limit=0))["hits"]) == 5
    seven = await answer(client, "recall", query="harbour", token_budget=0, limit=7)
    assert len(seven["hits"]) == 7
    assert "more" not in seven
    assert await answer(client, "recall", query="harbour", token_budget=None) == capped
    assert await error(client, "recall", query="harbour", token_budget=-1) == "cave_invalid_arguments"


async def test_rows_of_a_foreign_program_are_found_at_the_next_recall(client: Client, tmp_path: Path) -> None:
    await answer(client, "remember", text="our own row")
    with closing(sqlite3.connect(tmp_path / "mem" / "mem.db")) as connection, connection:
        row = ("mem_foreign", "their walrus row", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z")
        connection.execute("INSERT INTO memories (id, text, created_at, valid_from) VALUES (?, ?, ?, ?)", row)
    assert await recalled(client, "walrus") == ["their walrus row"]
    with closing(sqlite3.connect(tmp_path / "mem" / "mem.db")) as connection, connection:
        connection.execute("DELETE FROM memories WHERE id = 'mem_foreign'")
    assert await recalled(client, "walrus") == []


async def test_a_store_of_the_oldest_layout_opens_in_place(tmp_path: Path) -> None:
    (tmp_path / "mem").mkdir()
    with closing(sqlite3.connect(tmp_path / "mem" / "mem.db")) as connection, connection:
        connection.execute("CREATE TABLE memories (id TEXT PRIMARY KEY, text TEXT NOT NULL, created_at TEXT NOT NULL)")
        row = (memory_id("an old fact"), "an old fact", "2024-05-06T07:08:09Z")
        connection.execute("INSERT INTO memories VALUES (?, ?, ?)", row)
    async with stdio_client(tmp_path) as client:
        assert await recalled(client, "old fact") == ["an old fact"]
        (version,) = (await answer(client, "history", id=row[0]))["history"]
        assert version["valid_from"] == version["created_at"] == row[2]
        await answer(client, "supersede", id=row[0], text="a new fact")
    assert cavemem(tmp_path, "recall", "fact").stdout.count(b'"id"') == 1


NASTY: dict[str, str] = {
    "NUL": "nul\0inside",
    "line separator": "line\u2028separator\u2029",
    "byte order mark": "\ufeffmarked",
    "right to left": "\u202eשלום\u202c مرحبا",
    "zalgo": "z" + "\u0335\u0315" * 400 + "algo",
    "emoji sequences": "👩‍👩‍👧‍👦🏳️‍🌈 family",
    "one unbroken run": "x" * SIZE_MAX,
    "blanks but one": " " * (SIZE_MAX - 1) + "y",
    "numbered tabs": "".join(f"{number}\t\n" for number in range(1, 9)),
    "noncharacters": "\uffff\U0010ffff astral 𝕏",
    "controls": "".join(map(chr, range(1, 32))) + "\x7f\x85 control",
    "special tokens": "<|endoftext|><|im_start|>",
    "quotes": "Robert'); DROP TABLE memories;--",
}


@pytest.mark.parametrize("name", NASTY)
async def test_a_nasty_text_is_stored_exactly_and_harms_no_other(name: str, tmp_path: Path) -> None:
    async with stdio_client(tmp_path) as client:
        stored: dict[str, Any] = await answer(client, "remember", text=NASTY[name])
        await answer(client, "remember", text="a perfectly normal neighbour")
        assert (await answer(client, "history", id=stored["id"]))["history"][0]["text"] == NASTY[name]
        assert await recalled(client, "neighbour") == ["a perfectly normal neighbour"]
        for query in (NASTY[name], NASTY[name][:100]):
            if query.strip():
                found = await answer(client, "recall", query=query)
                assert sum(hit["tokens_added"] for hit in found["hits"]) <= 2000
        assert await answer(client, "forget", id=stored["id"]) == {"forgotten": True}
        assert await recalled(client, "neighbour") == ["a perfectly normal neighbour"]
