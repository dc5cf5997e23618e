"""What may only be read is read, whole; writes say why they cannot be; nothing in the folder changes."""

import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import pytest

from cavemem_mcp import CaveError, StoreError, doctor, open_memory, portability
from cavemem_mcp.store import open_snapshot
from cavemem_mcp.stores import StorePool
from tests.faults.disks import NOBODY, Disk, mounted, permissions_that_count
from tests.faults.stores import LONG, Sample, assert_readable, assert_sound, contents, crash, make_sample
from tests.live import cavemem


def leave_clean(sample: Sample) -> None:
    assert {path.name for path in sample.folder.iterdir()} == {"mem.db", "ccr.db"}


def leave_a_log(sample: Sample) -> None:
    crash(sample)


def leave_a_log_alone(sample: Sample) -> None:
    crash(sample)
    for path in sample.folder.glob("*-shm"):
        path.unlink()


LEFT = {"clean": leave_clean, "crashed": leave_a_log, "crashed_without_shared_memory": leave_a_log_alone}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return make_sample(tmp_path_factory.mktemp("original") / "mem")


@pytest.fixture
def disk(tmp_path: Path) -> Generator[Disk]:
    with mounted(tmp_path / "disk", "8m") as disk:
        yield disk


@pytest.fixture
def nobodys() -> Generator[Path]:
    """Return a folder of a user who is not root, where that user can reach it."""
    folder = Path(tempfile.mkdtemp())
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    yield folder
    for path in folder.rglob("*"):
        path.chmod(0o700)
    shutil.rmtree(folder)


def assert_only_readable(sample: Sample, *, has_crashed: bool) -> None:
    """Assert that everything can be read, and that whoever writes is told why not."""
    before = contents(sample.folder)
    with closing(open_memory(sample.folder)) as memory:
        assert_readable(memory, sample)
        assert bool(memory.recall("crane painted crash").hits) == has_crashed
        assert memory.recovery.recover(sample.handle) == LONG.encode()
        with open_snapshot(sample.folder, wait_ms_max=100) as snapshot:
            assert snapshot.memory(sample.short)
        memory.catch_up()
        for write in (
            lambda: memory.remember("A new fact."),
            lambda: memory.supersede(sample.short, "A new fact."),
            lambda: memory.forget(sample.short),
        ):
            with pytest.raises(CaveError, match=r"mem\.db: the file cannot be (written|opened).*check"):
                write()
        assert_readable(memory, sample)
    assert contents(sample.folder) == before


def findings(folder: Path) -> dict[str, tuple[str, str]]:
    return {check.name: (check.status, check.found) for check in doctor.examine(folder).checks}


@pytest.mark.parametrize("leave", LEFT.values(), ids=LEFT.keys())
def test_a_store_on_a_read_only_disk_can_be_read(
    disk: Disk, original: Sample, leave: Callable[[Sample], None], figures: Counter[str]
) -> None:
    sample = original.copied_to(disk.at / "mem")
    leave(sample)
    disk.remount("ro")

    assert_only_readable(sample, has_crashed=leave is not leave_clean)
    found = findings(sample.folder)

    assert found["folder"] == ("problem", "cannot be written, so that only reading is sure to work")
    assert {found[name][0] for name in ("integrity", "layout", "memories", "index", "originals")} == {"ok"}
    figures["read-only stores read"] += 1


@pytest.mark.parametrize("leave", LEFT.values(), ids=LEFT.keys())
@pytest.mark.parametrize("name", [".", "mem.db", "*.db"])
def test_a_store_without_permission_to_write_can_be_read(
    nobodys: Path, original: Sample, leave: Callable[[Sample], None], name: str, figures: Counter[str]
) -> None:
    sample = original.copied_to(nobodys / "mem")
    leave(sample)
    for path in (sample.folder, *sample.folder.iterdir()):
        os.chown(path, nobodys.stat().st_uid, -1)
    for path in sample.folder.glob(name) if name != "." else [sample.folder]:
        path.chmod(0o500 if path.is_dir() else 0o400)

    with permissions_that_count():
        can_write = name == "." and leave is leave_a_log  # with a log to share, nothing need be made in the folder
        before = contents(sample.folder, ["mem.db", "ccr.db"])
        with closing(open_memory(sample.folder)) as memory:
            assert_readable(memory, sample)
            assert bool(memory.recall("crane painted crash").hits) == (leave is not leave_clean)
            if not can_write:
                with pytest.raises(CaveError, match=r"mem\.db: the file cannot be (written|opened).*check"):
                    memory.remember("A new fact.")
            assert_readable(memory, sample)
        assert can_write or contents(sample.folder, ["mem.db", "ccr.db"]) == before
        found = findings(sample.folder)

    assert "cannot be written" in found["folder" if name == "." else "files"][1]
    assert found["index"][0] == "ok"
    figures["read-only stores read"] += 1


def test_permissions_that_the_owner_took_away_stay_away(nobodys: Path) -> None:
    with permissions_that_count():
        with closing(open_memory(nobodys / "mem")) as memory:
            memory.remember("A fact.")
        (nobodys / "mem" / "mem.db").chmod(0o444)
        (nobodys / "mem").chmod(0o555)

        open_memory(nobodys / "mem").close()

        assert (nobodys / "mem" / "mem.db").stat().st_mode & 0o777 == 0o400
        assert (nobodys / "mem").stat().st_mode & 0o777 == 0o500


def test_an_open_store_writes_as_soon_as_it_may(disk: Disk, original: Sample) -> None:
    sample = original.copied_to(disk.at / "mem")
    disk.remount("ro")
    with closing(open_memory(sample.folder)) as memory:
        with pytest.raises(CaveError, match="check"):
            memory.remember("A new fact.")

        disk.remount("rw")

        memory.remember("A new fact.")
        assert memory.recall("new fact").hits
        memory.forget(sample.short)
    assert_sound(sample.folder)


def test_an_open_store_is_read_on_by_as_many_as_before_when_it_may_no_longer_be_written(
    nobodys: Path, original: Sample
) -> None:
    sample = original.copied_to(nobodys / "mem")
    for path in (sample.folder, *sample.folder.iterdir()):
        os.chown(path, nobodys.stat().st_uid, -1)
    with permissions_that_count(), closing(open_memory(sample.folder)) as memory:
        for path in sample.folder.iterdir():
            path.chmod(0o400)

        with memory.store.read() as first, memory.store.read() as second:
            assert first.memory(sample.short) == second.memory(sample.short)
            assert_readable(memory, sample)


def test_a_change_while_a_read_only_store_is_read_is_noticed(disk: Disk, original: Sample) -> None:
    sample = original.copied_to(disk.at / "mem")
    disk.remount("ro")
    with closing(open_memory(sample.folder)) as memory:
        reading = memory.store.read()
        reading.__enter__()
        disk.remount("rw")
        with closing(open_memory(sample.folder)) as another:
            another.remember("A new fact.")
        disk.remount("ro")

        with pytest.raises(CaveError, match="another program changed the file"):
            reading.__exit__(None, None, None)

        assert memory.recall("new fact").hits


def test_a_read_only_store_is_exported_and_backed_up(disk: Disk, original: Sample, tmp_path: Path) -> None:
    sample = original.copied_to(disk.at / "mem")
    crash(sample)
    disk.remount("ro")

    with closing(open_memory(sample.folder)) as memory:
        portability.backup(memory, tmp_path / "backup.tar")
        with (tmp_path / "export.jsonl").open("wb") as stream:
            assert portability.export(memory, stream.write, lambda count: None).memories == 25
    shutil.unpack_archive(tmp_path / "backup.tar", tmp_path / "restored", filter="data")

    with closing(open_memory(tmp_path / "restored" / "mem")) as memory:
        assert_readable(memory, sample)
        assert memory.recall("crane painted crash").hits


def test_the_command_reads_and_says_why_it_does_not_write(disk: Disk, original: Sample) -> None:
    original.copied_to(disk.at / "mem")
    disk.remount("ro")

    recalled = cavemem(disk.at, "recall", "When does the harbour open?")
    refused = cavemem(disk.at, "remember", "A new fact.")

    assert (recalled.returncode, refused.returncode) == (0, 1)
    assert b"The harbour opens at seven." in recalled.stdout
    assert b"can only be read (ReadOnlyError)" in recalled.stderr
    assert json.loads(refused.stderr.splitlines()[-1])["error"] == "cave_remember_failed"


async def test_a_server_whose_disk_cannot_be_written_is_not_ready(disk: Disk, original: Sample) -> None:
    original.copied_to(disk.at / "mem")
    pool = StorePool(disk.at, open_memory, open_max=1, idle_seconds_max=60, keeps_default=True)
    disk.remount("ro")
    with pytest.raises(StoreError, match="Read-only file system"):
        await pool.check_ready()

    disk.remount("rw")
    await pool.check_ready()
    pool.close()


def test_a_read_only_disk_without_a_store_is_told(disk: Disk) -> None:
    disk.remount("ro")

    with pytest.raises(CaveError, match="Read-only file system"):
        open_memory(disk.at / "mem")


def test_an_older_store_on_a_read_only_disk_is_told(disk: Disk, original: Sample) -> None:
    sample = original.copied_to(disk.at / "mem")
    with closing(open_memory(sample.folder)) as memory:
        memory.store._writer.pragma("user_version", 0)  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
    disk.remount("ro")

    with pytest.raises(CaveError, match="cannot be written; check"):
        open_memory(sample.folder)
