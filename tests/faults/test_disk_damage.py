"""Whatever became of a file is told, and nobody makes it worse: it stays as it is, byte for byte."""

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from random import Random

import apsw
import pytest

from cavemem_mcp import CaveError, OperationFailedError, doctor, open_memory
from tests.faults.stores import QUERY, Sample, assert_readable, assert_sound, contents, crash, make_sample
from tests.store.foreign import ForeignProgram


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return make_sample(tmp_path_factory.mktemp("original") / "mem")


@pytest.fixture
def sample(original: Sample, tmp_path: Path) -> Sample:
    return original.copied_to(tmp_path / "mem")


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def cut_in_half(path: Path) -> None:
    cut(path, path.stat().st_size // 2)


def cut_inside_a_page(path: Path) -> None:
    cut(path, path.stat().st_size - 100)


def cut_to_a_page(path: Path) -> None:
    cut(path, 4096)


def cut_to_a_header(path: Path) -> None:
    cut(path, 100)


def cut_to_nothing(path: Path) -> None:
    cut(path, 0)


def cut_to_nothing_but_a_log(path: Path) -> None:
    crash_at(path)
    cut(path, 0)


def lose_all_but_a_log(path: Path) -> None:
    crash_at(path)
    path.unlink()


def crash_at(path: Path) -> None:
    path.with_name(f"{path.name}-wal").write_bytes(b"the only copy of something\n" * 200)


def write_wrong_magic(path: Path) -> None:
    path.write_bytes(b"Notes for my successor" + path.read_bytes()[22:])


def write_zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def put_a_folder_there(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "letters").write_text("precious")


def put_a_dangling_link_there(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("elsewhere"))


def put_a_link_there(path: Path) -> None:
    path.symlink_to(path.rename(path.with_name("elsewhere")))


RUINED: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "half": (cut_in_half, "integrity", "damaged"),
    "inside_a_page": (cut_inside_a_page, "integrity", "damaged"),
    "a_page": (cut_to_a_page, "integrity", "damaged"),
    "a_header": (cut_to_a_header, "integrity", "damaged"),
    "nothing": (cut_to_nothing, "integrity", "is empty"),
    "nothing_but_a_log": (cut_to_nothing_but_a_log, "integrity", "is empty"),
    "all_but_a_log": (lose_all_but_a_log, "files", "there is no mem.db"),
    "wrong_magic": (write_wrong_magic, "integrity", "not a database"),
    "zeros": (write_zeros, "integrity", "not a database"),
    "a_folder": (put_a_folder_there, "files", "mem.db is not a file"),
    "a_dangling_link": (put_a_dangling_link_there, "files", "mem.db is a symbolic link"),
    "a_link": (put_a_link_there, "files", "mem.db is a symbolic link"),
}
"""What happens to `mem.db`, and which check of the doctor says what about it."""


def found(folder: Path) -> dict[str, str]:
    """Return what the doctor finds and says, having changed nothing."""
    before, names = contents(folder), sorted(path.name for path in folder.iterdir())
    report = doctor.examine(folder)
    assert (contents(folder), sorted(path.name for path in folder.iterdir())) == (before, names)
    assert "harbour" not in report.as_text()
    return {check.name: f"{check.status}: {check.found}" for check in report.checks}


@pytest.mark.parametrize(("ruin", "check", "said"), RUINED.values(), ids=RUINED.keys())
def test_a_ruined_store_is_told_and_stays_as_it_is(
    sample: Sample, ruin: Callable[[Path], None], check: str, said: str, figures: Counter[str]
) -> None:
    ruin(sample.folder / "mem.db")
    before, names = contents(sample.folder), sorted(path.name for path in sample.folder.iterdir())

    for _ in range(2):
        with pytest.raises(CaveError, match=r"mem\.db"):
            open_memory(sample.folder)

    assert (contents(sample.folder), sorted(path.name for path in sample.folder.iterdir())) == (before, names)
    assert found(sample.folder)[check].startswith("problem: ")
    assert said in found(sample.folder)[check]
    figures["damaged files refused"] += 1


@pytest.mark.parametrize("ruin", [entry[0] for entry in RUINED.values()], ids=RUINED.keys())
def test_a_ruined_recovery_store_takes_nothing_that_memories_have(
    sample: Sample, ruin: Callable[[Path], None], figures: Counter[str]
) -> None:
    path = sample.folder / "ccr.db"
    ruin(path)
    before = contents(sample.folder)
    with closing(open_memory(sample.folder)) as memory:
        assert_readable(memory, sample)
        assert memory.recall(QUERY, limit=1).hits[0].id == sample.long
        memory.remember("Whatever became of the originals.")
        memory.forget(sample.short) if path.is_file() and path.stat().st_size > 10**6 else None
    after = contents(sample.folder)
    assert {name: after[name] for name in before if name.startswith("ccr")} == {
        name: data for name, data in before.items() if name.startswith("ccr")
    }
    assert "problem: " in found(sample.folder)["originals"] + found(sample.folder)["files"]
    figures["damaged files refused"] += 1


def lose_the_log(folder: Path) -> None:
    for path in folder.glob("*-wal"):
        path.unlink()


def lose_shared_memory(folder: Path) -> None:
    for path in folder.glob("*-shm"):
        path.unlink()


def scribble_on_shared_memory(folder: Path) -> None:
    for path in folder.glob("*-shm"):
        path.write_bytes(bytes(range(256)) * (path.stat().st_size // 256))


def tear_the_log(folder: Path) -> None:
    for path in folder.glob("*-wal"):
        cut(path, path.stat().st_size - 50)


LOST = {
    "the_log": (lose_the_log, False),
    "shared_memory": (lose_shared_memory, True),
    "the_sense_of_shared_memory": (scribble_on_shared_memory, True),
    "the_end_of_the_log": (tear_the_log, False),
}
"""What happens beside a database that a crashed program leaves, and whether its last memory is still there."""


@pytest.mark.parametrize(("lose", "has_last"), LOST.values(), ids=LOST.keys())
def test_what_is_lost_beside_a_store_does_not_harm_what_is_in_it(
    sample: Sample, *, lose: Callable[[Path], None], has_last: bool, figures: Counter[str]
) -> None:
    crash(sample)
    lose(sample.folder)
    assert found(sample.folder)["index"].startswith("ok")

    with closing(open_memory(sample.folder)) as memory:
        assert_readable(memory, sample)
        assert bool(memory.recall("crane painted crash").hits) == has_last
        memory.remember("After the crash.")

    assert_sound(sample.folder)
    figures["stores opened after a loss beside them"] += 1


@pytest.fixture
def no_shared_memory() -> Generator[None]:
    """Let SQLite use files as on a disk without shared memory and POSIX locks."""
    before = apsw.vfs_names()[0]
    apsw.set_default_vfs("unix-dotfile")
    yield
    apsw.set_default_vfs(before)


@pytest.mark.usefixtures("no_shared_memory")
def test_a_new_store_on_a_disk_without_shared_memory_is_told(tmp_path: Path) -> None:
    with pytest.raises(CaveError, match=r"mem\.db: its disk allows no write-ahead log; move the store to a local disk"):
        open_memory(tmp_path / "mem")


@pytest.mark.usefixtures("no_shared_memory")
def test_a_store_on_a_disk_without_shared_memory_can_be_read(sample: Sample) -> None:
    before = contents(sample.folder)
    with closing(open_memory(sample.folder)) as memory:
        assert_readable(memory, sample)
        with pytest.raises(CaveError, match="the disk is local"):
            memory.remember("A new fact.")
    assert contents(sample.folder) == before


@pytest.mark.parametrize("is_leaf", [False, True])
@pytest.mark.parametrize("number", [0, 1, 0x7FFFFFFF])
def test_a_list_of_free_pages_that_leads_nowhere_is_told(sample: Sample, number: int, is_leaf: bool) -> None:  # noqa: FBT001 - a parameter
    with closing(open_memory(sample.folder)) as memory:
        memory.forget(sample.long)
    path = sample.folder / "mem.db"
    data = bytearray(path.read_bytes())
    trunk = int.from_bytes(data[32:36])
    assert trunk
    at = (trunk - 1) * 4096 + 8 if is_leaf else 32
    data[at : at + 4] = number.to_bytes(4)
    path.write_bytes(data)
    assert "damaged" in found(sample.folder)["integrity"]

    with closing(open_memory(sample.folder)) as memory:
        if number or is_leaf:  # SQLite believes that there is no list
            with pytest.raises(CaveError, match="damaged"):
                memory.forget(sample.short)
        assert [hit.id for hit in memory.recall("harbour opens").hits] == [sample.current]


def test_a_name_that_is_no_text_is_told(sample: Sample) -> None:
    path = sample.folder / "mem.db"
    path.write_bytes(path.read_bytes().replace(b"idx_totals", b"idx_\xfftals"))

    with pytest.raises(CaveError, match=r"mem\.db: the file is damaged"):
        open_memory(sample.folder)
    assert "damaged" in found(sample.folder)["integrity"]


def test_a_flipped_bit_never_is_a_defect_and_never_costs_the_rest(
    original: Sample, tmp_path: Path, sized: Callable[[int, int], int], rng: Random, figures: Counter[str]
) -> None:
    for _ in range(sized(60, 6000)):
        sample = original.copied_to(tmp_path / "mem")
        path = sample.folder / rng.choice(["mem.db", "mem.db", "mem.db", "ccr.db"])
        flip_bits(path, rng)
        before = path.read_bytes()
        is_healthy = doctor.examine(sample.folder).is_healthy
        assert path.read_bytes() == before
        outcome = used(sample)
        if outcome == "refused":
            assert path.read_bytes() == before
            assert not is_healthy
        figures[f"stores with flipped bits {outcome}"] += 1


def flip_bits(path: Path, rng: Random) -> None:
    """Flip one bit or some, anywhere or where the file or a page begins."""
    data = bytearray(path.read_bytes())
    page = rng.randrange(len(data) // 4096) * 4096
    first, size = rng.choice([(0, len(data)), (0, 100), (page, 12)])
    for _ in range(rng.choice([1, 1, 1, 8, 64])):
        data[first + rng.randrange(size)] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def used(sample: Sample) -> str:
    """Use a store in every way; whatever fails must be told, and be no defect."""
    try:
        memory = open_memory(sample.folder)
    except CaveError as error:
        return _told(error, "refused")
    outcome = "used"
    with closing(memory):
        for operation in (
            lambda: memory.recall("harbour pier wood request", limit=100),
            lambda: memory.history(sample.old),
            lambda: memory.recover(sample.handle),
            lambda: memory.recovery.recover(sample.handle),
            lambda: memory.remember("A new fact about the harbour."),
            lambda: memory.supersede(sample.current, "The harbour opens at eight."),
            lambda: memory.forget(sample.short),
            lambda: memory.forget(sample.long),
        ):
            try:
                operation()
            except CaveError as error:
                outcome = _told(error, "used in part")
    return outcome


def _told(error: CaveError, outcome: str) -> str:
    assert "defect" not in error.message
    assert "harbour" not in error.message
    return outcome


def test_a_forget_beside_long_texts_tells_of_damaged_pages_before_it_walks_them(folder: Path) -> None:
    with closing(open_memory(folder)) as memory:
        memory.remember("long " * 5000)
    with ForeignProgram(folder / "mem.db") as another:
        another.run("CREATE TABLE others(text)")
        another.run("INSERT INTO others VALUES ('of another program')")
        [(page,)] = another.run("SELECT rootpage FROM sqlite_schema WHERE name = 'others'")
        [(page_bytes,)] = another.run("PRAGMA page_size")
        another.run("PRAGMA wal_checkpoint(TRUNCATE)")
    with (folder / "mem.db").open("r+b") as file:
        file.seek((page - 1) * page_bytes)
        file.write(b"\xff")

    with closing(open_memory(folder)) as memory:
        id = memory.remember("a short text that goes").id
        with pytest.raises(OperationFailedError, match=r"bytes are still in the files.* the file is damaged"):
            memory.forget(id)
        assert [hit.text for hit in memory.recall("short goes").hits] == []
