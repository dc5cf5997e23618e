"""What the six operations mean, over the real stores."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from cavemem_mcp.errors import InvalidArgumentsError, MemoryTooLargeError, OperationFailedError
from cavemem_mcp.model import MEMORY_BYTES_MAX, handle_of, memory_id, recovery_handle
from cavemem_mcp.recovery import RecoveryStore
from cavemem_mcp.service import Cavemem
from cavemem_mcp.store import files, open_store
from cavemem_mcp.tokens import count as count_tokens
from tests.server.processes import poll
from tests.store.foreign import ForeignProgram

LONG = " ".join(f"entry {number} of the harbour log" for number in range(2000))


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Cavemem]:
    ticks = count(1_700_000_000_000_000_000)
    memory = Cavemem(open_store(tmp_path / "mem"), RecoveryStore(tmp_path / "mem"), clock=lambda: next(ticks))
    yield memory
    memory.close()


def refusal(call: Callable[[], object]) -> OperationFailedError:
    with pytest.raises(OperationFailedError) as refused:
        call()
    return refused.value


def test_remembering_the_same_text_again_is_the_same_memory(memory: Cavemem) -> None:
    first = memory.remember("Ada prefers tabs")
    assert memory.remember("Ada prefers tabs") == first
    assert first.id == memory_id("Ada prefers tabs")
    assert first.created_at == "2023-11-14T22:13:20.000000000Z"
    assert len(memory.recall("tabs").hits) == 1


def test_a_text_is_stored_to_the_byte(memory: Cavemem) -> None:
    text = "\ufeffpad\0\u2028 \r\n‮rtl z̷a̷l̷g̷o̷ 👩‍👩‍👧 \t"
    stored = memory.remember(text)
    assert memory.history(stored.id).history[0].text == text
    assert memory.recall("pad").hits[0].text == text


@pytest.mark.parametrize("text", ["", "  \n", "half \ud800 pair"])
def test_a_blank_or_broken_text_is_refused(memory: Cavemem, text: str) -> None:
    with pytest.raises(InvalidArgumentsError, match="text: "):
        memory.remember(text)


def test_a_text_too_large_is_refused_and_nothing_stored(memory: Cavemem) -> None:
    with pytest.raises(MemoryTooLargeError):
        memory.remember("x" * (MEMORY_BYTES_MAX + 1))
    with pytest.raises(MemoryTooLargeError):
        memory.supersede(memory.remember("old").id, "é" * MEMORY_BYTES_MAX)
    assert memory.recall("old").hits[0].text == "old"


def test_a_superseded_memory_stops_matching(memory: Cavemem) -> None:
    old = memory.remember("Deploys happen on Friday")
    new = memory.supersede(old.id, "Deploys happen on Tuesday")
    assert (new.supersedes, new.id) == (old.id, memory_id("Deploys happen on Tuesday"))
    assert [hit.id for hit in memory.recall("deploys Friday").hits] == [new.id]


def test_history_runs_from_the_oldest_to_the_newest_from_any_version(memory: Cavemem) -> None:
    first = memory.remember("version one")
    second = memory.supersede(first.id, "version two")
    third = memory.supersede(second.id, "version three")
    expected = [first.id, second.id, third.id]
    for id in expected:
        assert [version.id for version in memory.history(id).history] == expected
    oldest, middle, newest = memory.history(third.id).history
    assert oldest.valid_until == middle.valid_from
    assert (oldest.superseded_by, middle.supersedes, middle.superseded_by) == (second.id, first.id, third.id)
    assert newest.is_current
    assert newest.superseded_by is None


def test_only_a_current_memory_can_be_superseded_and_the_refusal_names_it(memory: Cavemem) -> None:
    first = memory.remember("one")
    second = memory.supersede(first.id, "two")
    third = memory.supersede(second.id, "three")
    assert third.id in refusal(lambda: memory.supersede(first.id, "four")).message
    assert refusal(lambda: memory.supersede("mem_unknown", "five")).error_id == "cave_supersede_failed"
    assert "nothing to supersede" in refusal(lambda: memory.supersede(third.id, "three")).message
    assert [version.text for version in memory.history(third.id).history] == ["one", "two", "three"]


def test_a_new_version_must_not_be_stored_already(memory: Cavemem) -> None:
    first, other = memory.remember("one"), memory.remember("other")
    assert other.id in refusal(lambda: memory.supersede(first.id, "other")).message
    second = memory.supersede(first.id, "two")
    assert f"expired memory {first.id}" in refusal(lambda: memory.supersede(second.id, "one")).message
    assert {hit.text for hit in memory.recall("one two other").hits} == {"two", "other"}


def test_an_expired_text_is_not_remembered_until_its_version_is_forgotten(memory: Cavemem) -> None:
    old = memory.remember("the office is in Delft")
    new = memory.supersede(old.id, "the office is in Leiden")
    refused = refusal(lambda: memory.remember("the office is in Delft"))
    assert new.id in refused.message
    assert f"forget {old.id}" in refused.message
    memory.forget(old.id)
    again = memory.supersede(new.id, "the office is in Delft")
    assert [version.id for version in memory.history(again.id).history] == [new.id, again.id]


def test_an_expired_text_without_a_current_version_says_how_to_make_room(memory: Cavemem) -> None:
    old = memory.remember("one")
    memory.forget(memory.supersede(old.id, "two").id)
    assert f"forget {old.id}" in refusal(lambda: memory.remember("one")).message
    assert "no current version" in refusal(lambda: memory.supersede(old.id, "three")).message
    assert memory.recall("one").hits == ()


def test_forgetting_the_middle_of_a_chain_joins_its_neighbours(memory: Cavemem) -> None:
    first = memory.remember("one")
    second = memory.supersede(first.id, "two")
    third = memory.supersede(second.id, "three")
    assert memory.forget(second.id).forgotten
    earlier, later = memory.history(first.id).history
    assert (earlier.superseded_by, later.supersedes) == (third.id, first.id)
    assert not memory.forget(second.id).forgotten
    assert "no memory has this id" in refusal(lambda: memory.history(second.id)).message


def test_forgetting_the_current_version_leaves_its_predecessor_expired(memory: Cavemem) -> None:
    first = memory.remember("harbour one")
    second = memory.supersede(first.id, "harbour two")
    memory.forget(second.id)
    assert memory.recall("harbour").hits == ()
    (only,) = memory.history(first.id).history
    assert only.valid_until is not None
    assert only.superseded_by is None


def test_recall_is_bounded_by_two_thousand_tokens_unless_told_otherwise(memory: Cavemem) -> None:
    stored = memory.remember(LONG)
    (hit,) = memory.recall("harbour").hits
    assert hit.tokens_added == count_tokens(hit.text) <= 2000
    assert hit.text != LONG
    assert hit.recovery_handle == recovery_handle(LONG)
    (whole,) = memory.recall("harbour", token_budget=None).hits
    assert (whole.text, whole.recovery_handle, whole.id) == (LONG, None, stored.id)


def test_a_shortened_hit_recovers_to_the_byte_in_one_piece_or_in_pages(memory: Cavemem) -> None:
    text = LONG + " 🧠 語" * 500
    memory.remember(text)
    handle = memory.recall("harbour", token_budget=1).hits[0].recovery_handle
    assert handle is not None
    whole = memory.recover(handle)
    assert (whole.text, whole.bytes, whole.offset) == (text, len(text.encode()), None)
    pages: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = memory.recover(handle, offset=offset, token_budget=700)
        assert count_tokens(page.text) <= 700
        assert page.offset == offset
        pages.append(page.text)
        offset = page.next_offset
    assert "".join(pages) == text


def test_a_page_makes_progress_however_small_the_budget(memory: Cavemem) -> None:
    memory.remember("🧠🧠 brain")
    handle = memory.recall("brain", token_budget=1).hits[0].recovery_handle
    assert handle is not None
    page = memory.recover(handle, token_budget=1)
    assert (page.text, page.offset, page.next_offset) == ("🧠", 0, 4)


@pytest.mark.parametrize("offset", [2, 5000])
def test_an_offset_inside_a_character_or_past_the_end_is_an_error(memory: Cavemem, offset: int) -> None:
    memory.remember("🧠 brain")
    handle = memory.recall("brain", token_budget=1).hits[0].recovery_handle
    assert handle is not None
    with pytest.raises(InvalidArgumentsError, match="offset: "):
        memory.recover(handle, offset=offset)


def test_a_handle_recovers_from_the_memory_when_its_original_was_not_kept(memory: Cavemem) -> None:
    memory.remember("never shortened")
    assert memory.recover(recovery_handle("never shortened")).text == "never shortened"
    assert refusal(lambda: memory.recover("ccr_" + "0" * 32)).error_id == "cave_recover_failed"
    same_prefix = recovery_handle("never shortened")[:-4] + "0000"
    assert refusal(lambda: memory.recover(same_prefix)).error_id == "cave_recover_failed"


def test_a_full_recovery_store_loses_no_byte_and_keeps_the_budget(tmp_path: Path) -> None:
    memory = Cavemem(open_store(tmp_path), RecoveryStore(tmp_path, bytes_max=1))
    memory.remember(LONG)
    (hit,) = memory.recall("harbour").hits
    assert hit.tokens_added <= 2000
    assert hit.recovery_handle is not None
    assert memory.recover(hit.recovery_handle).text == LONG
    memory.close()


def test_after_forget_neither_an_old_handle_nor_the_files_give_the_text_back(tmp_path: Path) -> None:
    memory = Cavemem(open_store(tmp_path), RecoveryStore(tmp_path))
    stored = memory.remember(LONG)
    handle = memory.recall("harbour").hits[0].recovery_handle
    assert handle is not None
    memory.forget(stored.id)
    assert refusal(lambda: memory.recover(handle)).error_id == "cave_recover_failed"
    assert memory.recall("harbour").hits == ()
    left = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"harbour" not in left
    memory.close()


def test_recall_says_what_the_budget_and_the_limit_left_out(memory: Cavemem) -> None:
    for number in range(6):
        memory.remember(f"harbour {number} " + "word " * 30)
    memory.remember("something else entirely")
    some = memory.recall("harbour", limit=4, token_budget=80)
    assert len(some.hits) == 2
    assert (some.omitted, some.more) == (2, True)
    everything = memory.recall("harbour", limit=6, token_budget=None)
    assert (len(everything.hits), everything.omitted, everything.more) == (6, 0, False)


def test_nothing_is_guessed(memory: Cavemem) -> None:
    memory.remember("the harbour master is called Ines")
    assert memory.recall("airport").hits == ()
    assert memory.recall("the of and").hits == ()
    assert memory.recall("🎉").hits == ()


def test_forget_says_what_is_left_when_the_recovery_file_cannot_be_used_and_the_next_start_finishes(
    tmp_path: Path,
) -> None:
    memory = Cavemem(open_store(tmp_path), RecoveryStore(tmp_path))
    stored = memory.remember(LONG)
    handle = memory.recall("harbour").hits[0].recovery_handle
    assert handle is not None
    memory.close()
    originals = tmp_path / "ccr.db"
    content = originals.read_bytes()
    originals.write_bytes(b"damaged!" * 512)

    memory = Cavemem(open_store(tmp_path), RecoveryStore(tmp_path))
    assert "is deleted" in refusal(lambda: memory.forget(stored.id)).message
    assert memory.recall("harbour").hits == ()
    memory.close()

    originals.write_bytes(content)
    memory = Cavemem(open_store(tmp_path), RecoveryStore(tmp_path))
    assert refusal(lambda: memory.recover(handle)).error_id == "cave_recover_failed"
    memory.finish_erasures()
    assert refusal(lambda: memory.recover(handle)).error_id == "cave_recover_failed"
    memory.close()
    assert b"harbour" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


RECORDS = json.dumps([{"harbour": "Rotterdam", "ship": f"ship {number}", "berth": number % 7} for number in range(60)])


def test_a_hit_comes_back_in_its_cheaper_form_and_recovers_to_the_byte(memory: Cavemem) -> None:
    memory.remember(RECORDS)
    memory.remember("a plain neighbour")
    (hit,) = memory.recall("rotterdam").hits
    assert hit.tokens_added == count_tokens(hit.text) < count_tokens(RECORDS) / 2
    assert hit.recovery_handle is not None
    assert memory.recover(hit.recovery_handle).text == RECORDS


def test_a_hit_whose_original_cannot_be_kept_comes_back_whole(tmp_path: Path) -> None:
    memory = Cavemem(open_store(tmp_path), RecoveryStore(tmp_path, bytes_max=1))
    memory.remember(RECORDS)
    memory.remember("a plain neighbour")
    (hit,) = memory.recall("rotterdam").hits
    assert (hit.text, hit.recovery_handle) == (RECORDS, None)
    assert hit.tokens_added == count_tokens(RECORDS)
    memory.close()


def test_an_oversized_hit_keeps_the_part_that_answers(memory: Cavemem) -> None:
    lines = [f"{number:04} the quay crane moved a container" for number in range(3000)]
    lines[2100] = "2100 the crane driver reported a broken winch"
    memory.remember("\n".join(lines))
    memory.remember("a plain neighbour")
    (hit,) = memory.recall("broken winch", token_budget=300).hits
    assert hit.tokens_added <= 300
    assert lines[2100] in hit.text.split("\n")
    assert "[… L1-" in hit.text


def test_a_short_memory_stays_whole_because_a_handle_would_cost_more_than_a_form_saves(memory: Cavemem) -> None:
    text = json.dumps([{"winch": number} for number in range(3)], indent=4)
    memory.remember(text)
    memory.remember("a plain neighbour")
    (hit,) = memory.recall("winch").hits
    assert (hit.text, hit.recovery_handle) == (text, None)


def test_an_original_of_another_program_that_is_no_text_is_given_back_as_bytes_only(tmp_path: Path) -> None:
    original = b"\xff\xfe\0 no text"
    handle = handle_of(original)
    with ForeignProgram(tmp_path / "ccr.db") as another:
        another.run("CREATE TABLE recoveries(handle TEXT PRIMARY KEY, original BLOB)")
        another.run("INSERT INTO recoveries VALUES (?, ?)", handle, original)
    memory = Cavemem(open_store(tmp_path), RecoveryStore(tmp_path))
    assert memory.original(handle) == original
    assert "no UTF-8 text" in refusal(lambda: memory.recover(handle)).message
    memory.close()


def test_a_forget_that_others_kept_from_scrubbing_is_finished_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BUSY_MS_MAX", 50)
    memory = Cavemem(open_store(tmp_path), RecoveryStore(tmp_path))
    stored = memory.remember(LONG)
    handle = memory.recall("harbour", token_budget=5).hits[0].recovery_handle
    assert handle is not None
    with ForeignProgram(tmp_path / "ccr.db") as reader:
        reader.run("BEGIN")
        reader.run("SELECT count(*) FROM originals")
        assert memory.forget(stored.id).forgotten
        assert refusal(lambda: memory.recover(handle)).error_id == "cave_recover_failed"
    memory.close()
    memory = Cavemem(open_store(tmp_path), RecoveryStore(tmp_path))
    memory.finish_erasures()
    with ForeignProgram(tmp_path / "ccr.db") as another:
        assert another.run("SELECT * FROM erasures") == []
    memory.close()
    assert b"harbour" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


def test_closing_waits_for_the_operations_in_progress_whoever_closes_first(folder: Path) -> None:
    is_keeping, may_go_on = threading.Event(), threading.Event()

    def clock() -> int:
        if threading.current_thread() is not threading.main_thread():
            is_keeping.set()
            assert may_go_on.wait(10)
        return 0

    memory = Cavemem(open_store(folder), RecoveryStore(folder), clock=clock)
    memory.remember("a long text about the harbour " * 20)
    with ThreadPoolExecutor(3) as threads:
        recalled = threads.submit(memory.recall, "harbour", token_budget=5)
        assert is_keeping.wait(10)
        closing_it = [threads.submit(memory.close)]
        while not memory._calls._have_ended:
            threading.Event().wait(0.001)
        closing_it.append(threads.submit(memory.close))
        assert wait(closing_it, 0.2, FIRST_COMPLETED).not_done == set(closing_it)
        assert "was closed; open the store again" in refusal(lambda: memory.recall("harbour")).message
        may_go_on.set()
        for closed in closing_it:
            closed.result()
    handle = recalled.result().hits[0].recovery_handle
    assert handle is not None
    with closing(RecoveryStore(folder)) as reopened:
        assert reopened.recover(handle) is not None


@pytest.mark.parametrize(
    "sql", ["UPDATE idx_terms SET df = 1000", "DELETE FROM idx_docs", "UPDATE idx_totals SET n = 0"]
)
def test_a_recall_that_finds_the_index_wrong_is_repeated_on_a_new_one(tmp_path: Path, sql: str) -> None:
    texts = ["the quay crane", "a crane at the berth", "a winch"]
    with closing(Cavemem(open_store(tmp_path), RecoveryStore(tmp_path))) as memory:
        for text in texts:
            memory.remember(text)
        expected = memory.recall("crane")
        with ForeignProgram(tmp_path / "mem.db") as another:
            another.run(sql)

            assert memory.recall("crane") == expected

            poll(lambda: another.run("SELECT count(*) FROM idx_docs") == [(3,)])
        assert memory.recall("crane") == expected


def test_numbers_that_mean_nothing_are_refused(memory: Cavemem) -> None:
    handle = recovery_handle(memory.remember("a fact") and "a fact")
    calls: list[Callable[[], object]] = [
        lambda: memory.recall("fact", limit=0),
        lambda: memory.recall("fact", limit=-1),
        lambda: memory.recall("fact", token_budget=0),
        lambda: memory.recover(handle, offset=-1),
        lambda: memory.recover(handle, token_budget=-5),
    ]
    for call in calls:
        with pytest.raises(InvalidArgumentsError, match="must be"):
            call()
