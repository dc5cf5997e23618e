"""A full disk is told, takes nothing away, leaves nothing half-written, and is forgotten when there is space again."""

import random
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from cavemem_mcp import CaveError, Cavemem, open_memory
from cavemem_mcp.recovery import RecoveryStore
from cavemem_mcp.store.sqlite import SqliteStore
from tests.faults.disks import Disk, mounted
from tests.faults.stores import LONG, Sample, assert_readable, assert_sound, make_sample, versions
from tests.store.foreign import ForeignProgram

Size = Callable[[int, int], int]
BLOCKS_MAX = 60
"""More free blocks than any of these operations needs."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return make_sample(tmp_path_factory.mktemp("original") / "mem")


@pytest.fixture
def disk(tmp_path: Path) -> Generator[Disk]:
    with mounted(tmp_path / "disk", "2m") as disk:
        yield disk


def blocks(sized: Size, rng: random.Random) -> range:
    """Return how many blocks to leave free: none, then more by steps from a random start."""
    step = sized(4, 1)
    return range(rng.randrange(step), BLOCKS_MAX, step)


def failure(operation: Callable[[], object]) -> str | None:
    """Return what a failed operation says; None when it succeeds."""
    try:
        operation()
    except CaveError as error:
        return f"{error.error_id}: {error.message}"
    return None


OPERATIONS: dict[str, Callable[[Cavemem, Sample], object]] = {
    "remember": lambda memory, sample: memory.remember("The quay is closed on Sundays. " * 40),
    "supersede": lambda memory, sample: memory.supersede(sample.short, "Zoë reviews after ten."),
    "forget": lambda memory, sample: memory.forget(sample.short),
    "recall": lambda memory, sample: memory.recall("request took worker", token_budget=700),
    "recover": lambda memory, sample: memory.recover(sample.handle),
    "history": lambda memory, sample: memory.history(sample.old),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_on_a_full_disk_is_done_or_undone(
    disk: Disk, original: Sample, name: str, sized: Size, rng: random.Random, figures: Counter[str]
) -> None:
    operation = OPERATIONS[name]
    outcomes = Counter[str]()
    for blocks_left in [0, *blocks(sized, rng)]:
        sample = original.copied_to(disk.at / "mem")
        if name == "recall":
            (sample.folder / "ccr.db").unlink()  # so that it has an original to keep
        with closing(open_memory(sample.folder)) as memory:
            before = versions(memory)
            disk.fill(blocks_left)
            told = failure(partial(operation, memory, sample))
            outcomes["told" if told else "done"] += 1
            if told:
                assert told.startswith(f"cave_{name}_failed: ")
                assert str(sample.folder) in told
                assert "disk is full" in told or "free space" in told
                assert "the memory is deleted" in told or versions(memory) == before
            assert_readable(memory, sample)
            disk.free()
            if name != "supersede" or memory.history(sample.short).history[-1].id == sample.short:
                operation(memory, sample)
            memory.remember("There is space again.")
        assert_sound(sample.folder)
    assert outcomes["done"]
    assert (name in ("remember", "supersede", "forget")) == bool(outcomes["told"])
    figures["operations on a full disk"] += outcomes.total()


def test_a_store_opens_to_be_read_on_a_full_disk_and_to_be_written_when_there_is_space(
    disk: Disk, original: Sample, sized: Size, rng: random.Random, figures: Counter[str]
) -> None:
    told = 0
    for blocks_left in [0, *blocks(sized, rng)]:
        sample = original.copied_to(disk.at / "mem")
        disk.fill(blocks_left)
        with closing(open_memory(sample.folder)) as memory:
            assert_readable(memory, sample)
            if said := failure(partial(memory.remember, "Pier 99 is new.")):
                told += 1
                assert str(sample.folder) in said
            disk.free()
            memory.remember("Pier 99 is new.")
            assert memory.recall("pier 99 new").hits
        assert_sound(sample.folder)
        figures["stores opened on a full disk"] += 1
    assert told


def test_an_original_is_recovered_on_a_full_disk_though_a_deletion_is_still_to_be_scrubbed(
    disk: Disk, original: Sample, sized: Size, rng: random.Random
) -> None:
    for blocks_left in [0, *blocks(sized, rng)]:
        sample = original.copied_to(disk.at / "mem")
        with ForeignProgram(sample.folder / "ccr.db") as another:
            another.run("INSERT INTO erasures VALUES ('ccr_left_by_a_process_that_died')")
        disk.fill(blocks_left)
        with closing(RecoveryStore(sample.folder)) as recovery:
            assert recovery.recover(sample.handle) == LONG.encode()
        disk.free()


def test_a_new_store_on_a_full_disk_is_told_and_made_when_there_is_space(disk: Disk) -> None:
    disk.fill(0)

    with pytest.raises(CaveError, match=r"mem.*No space left on device"):
        open_memory(disk.at / "home" / "mem")

    disk.free()
    with closing(open_memory(disk.at / "home" / "mem")) as memory:
        memory.remember("There is space again.")
    assert [path.name for path in (disk.at / "home" / "mem").iterdir()] == ["mem.db"]


def test_a_migration_on_a_full_disk_leaves_the_old_store_or_the_new(
    disk: Disk, tmp_path: Path, sized: Size, rng: random.Random, figures: Counter[str]
) -> None:
    with ForeignProgram(tmp_path / "old.db") as another:
        another.run("CREATE TABLE memories(id TEXT PRIMARY KEY, text TEXT NOT NULL, created_at TEXT NOT NULL)")
        for number in range(100):
            another.run("INSERT INTO memories VALUES (?, ?, 't')", f"m{number}", f"pier number{number}")
    old = (tmp_path / "old.db").read_bytes()
    path = disk.at / "mem" / "mem.db"
    told = 0
    for blocks_left in [0, *blocks(sized, rng)]:
        path.parent.mkdir(exist_ok=True)
        for left in path.parent.iterdir():
            left.unlink()
        path.write_bytes(old)
        disk.fill(blocks_left)
        if said := failure(lambda: SqliteStore(path.parent).close()):
            told += 1
            assert str(path) in said
        disk.free()
        with ForeignProgram(path) as another:
            columns = another.run("SELECT count(*) FROM pragma_table_info('memories')")
            assert columns in ([(3,)], [(7,)])
            assert (columns == [(7,)]) == (another.run("PRAGMA user_version") == [(1,)])
        with closing(open_memory(path.parent)) as memory:
            memory.catch_up()
            assert [hit.id for hit in memory.recall("number42").hits] == ["m42"]
        assert_sound(path.parent)
        figures["migrations on a full disk"] += 1
    assert told


def test_catching_up_on_a_full_disk_goes_on_when_there_is_space(
    disk: Disk, original: Sample, sized: Size, rng: random.Random, figures: Counter[str]
) -> None:
    told = 0
    for blocks_left in [0, *blocks(sized, rng)]:
        sample = original.copied_to(disk.at / "mem")
        with closing(open_memory(sample.folder)) as memory:
            with ForeignProgram(sample.folder / "mem.db") as another:
                for number in range(40):
                    values = (f"go{number}", f"crane number{number} " * 20)
                    another.run("INSERT INTO memories(id, text, created_at, valid_from) VALUES (?, ?, '', '')", *values)
            disk.fill(blocks_left)
            if said := failure(memory.catch_up):
                told += 1
                assert str(sample.folder) in said
            assert [hit.id for hit in memory.recall("number17 crane").hits][:1] == ["go17"]
            disk.free()
            memory.catch_up()
        assert_sound(sample.folder)
        figures["catch-ups on a full disk"] += 1
    assert told


def test_a_backup_to_a_full_disk_names_the_disk_that_is_full(disk: Disk, original: Sample, tmp_path: Path) -> None:
    with closing(open_memory(original.copied_to(tmp_path / "mem").folder)) as memory:
        disk.fill(3)

        with pytest.raises(CaveError, match=str(disk.at)):
            memory.store.backup(disk.at / "copy.db")
