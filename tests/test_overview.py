"""How much there is, and the list of it, as people and programs read them."""

import itertools
import unicodedata
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cavemem_mcp import Cavemem, InvalidArgumentsError, Memory, __version__
from cavemem_mcp.model import memory_id
from cavemem_mcp.overview import Listing, listing, status
from cavemem_mcp.recovery import RecoveryStore
from cavemem_mcp.store import open_store

DAY_NS = 24 * 60 * 60 * 1_000_000_000
START_NS = 20_454 * DAY_NS  # 2026-01-01


@pytest.fixture
def memory(folder: Path) -> Generator[Cavemem]:
    """Return a memory whose every version is stored a day after the one before, from 2026-01-01 on."""
    days = itertools.count(START_NS, DAY_NS)
    with closing(Cavemem(open_store(folder), RecoveryStore(folder), clock=lambda: next(days))) as memory:
        yield memory


def _fill(memory: Cavemem) -> list[str]:
    first = memory.remember("Webshop: deploys on Friday").id
    second = memory.supersede(first, "Webshop: deploys on Tuesday").id
    return [first, second, memory.remember("Zoë drinks TEA").id]


def _listed(found: Listing) -> list[str]:
    return [memory.id for memory in found.memories]


def test_an_empty_memory_has_a_status(memory: Cavemem, folder: Path) -> None:
    found = status(memory).as_json()
    assert found["path"] == str(folder / "mem.db")
    assert (found["current"], found["expired"], found["chains"]) == (0, 0, 0)
    assert (found["oldest"], found["newest"], found["largest"]) == (None, None, None)
    assert "memories  0 current, 0 expired, in 0 chains\n" in status(memory).as_text()


def test_the_status_counts_versions_chains_and_bytes(memory: Cavemem, folder: Path) -> None:
    ids = _fill(memory)
    found = status(memory).as_json()
    assert (found["current"], found["expired"], found["chains"]) == (2, 1, 2)
    assert (found["oldest"], found["newest"]) == ("2026-01-01T00:00:00.000000000Z", "2026-01-03T00:00:00.000000000Z")
    assert found["largest"] == {"id": ids[1], "bytes": 27}
    assert found["bytes"] == {
        "text": 26 + 27 + 15,
        "store_file": sum((folder / name).stat().st_size for name in ("mem.db", "mem.db-wal")),
        "recovery_file": 0,
    }
    assert found["versions"] == status(memory).versions
    assert status(memory).versions["cavemem"] == __version__


def test_the_status_counts_the_file_of_originals(memory: Cavemem) -> None:
    memory.remember("payment gateway\n" * 3000)
    memory.recall("payment", token_budget=10)
    assert status(memory).recovery_file_bytes > 0
    assert f"{status(memory).recovery_file_bytes:,} of originals" in status(memory).as_text()


def test_the_list_has_current_memories_newest_first(memory: Cavemem) -> None:
    first, second, tea = _fill(memory)
    assert _listed(listing(memory)) == [tea, second]
    assert _listed(listing(memory, expired=True)) == [tea, second, first]


def test_the_list_says_when_the_limit_left_some_out(memory: Cavemem) -> None:
    _, second, tea = _fill(memory)
    assert listing(memory, limit=1).as_json() == {
        "memories": [listing(memory).memories[0].as_json()],
        "more": True,
    }
    assert _listed(listing(memory, limit=2)) == [tea, second]
    assert listing(memory, limit=2).more is False
    assert listing(memory, limit=0).as_json() == {"memories": [], "more": True}


@pytest.mark.parametrize("wanted", ["tea", "ZOË", "drinks t"])
def test_the_list_finds_parts_of_texts_in_any_case(memory: Cavemem, wanted: str) -> None:
    tea = _fill(memory)[2]
    assert _listed(listing(memory, contains=wanted)) == [tea]


@pytest.mark.parametrize(
    ("since", "count"),
    [
        ("2026-01-01", 3),
        ("2026-01-02", 2),
        ("2026-01-02T00:00:00Z", 2),
        ("2026-01-02T00:00:01", 1),
        ("2026-01-03T01:00:00+01:00", 1),
        ("2026-01-03T00:00:00.000001", 0),
        ("9999-12-31", 0),
    ],
)
def test_the_list_begins_at_a_date_or_time(memory: Cavemem, since: str, count: int) -> None:
    _fill(memory)
    assert len(listing(memory, since=since, expired=True).memories) == count


@pytest.mark.parametrize("since", ["yesterday", "2026-13-01", "0001-01-01T00:00:00+14:00", "1"])
def test_what_is_no_date_is_refused(memory: Cavemem, since: str) -> None:
    with pytest.raises(InvalidArgumentsError, match="since: is neither a date nor a time"):
        listing(memory, since=since)


def test_the_table_shows_ends_only_where_there_are_some(memory: Cavemem) -> None:
    first, second, tea = _fill(memory)
    assert listing(memory).as_table(None).splitlines() == [
        "id                    stored (UTC)      text",
        f"{tea}  2026-01-03 00:00  Zoë drinks TEA",
        f"{second}  2026-01-02 00:00  Webshop: deploys on Tuesday",
    ]
    assert listing(memory, expired=True).as_table(None).splitlines()[-1] == (
        f"{first}  2026-01-01 00:00  2026-01-02 00:00  Webshop: deploys on Friday"
    )


def _columns(line: str) -> int:
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in line)
    return len(line) + wide - sum(bool(unicodedata.combining(character)) for character in line)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(1, 120))
def test_every_line_fits_the_terminal_and_none_commands_it(text: str, width: int) -> None:
    found = Memory(id=memory_id(text), text=text, created_at="2026-01-01T00:00:00Z", valid_from="2026-01-01T00:00:00Z")
    table = Listing(memories=(found,), more=False).as_table(width)
    assert table.count("\n") == 2
    assert all(_columns(line) <= width for line in table.split("\n"))
    assert table.replace("\n", "").isprintable()


def test_a_wide_text_is_cut_with_a_sign(memory: Cavemem) -> None:
    memory.remember("茶" * 50)
    line = listing(memory).as_table(50).splitlines()[1]
    assert line.endswith("  茶茶茶茶…")
