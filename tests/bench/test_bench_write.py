"""The benchmark of writes runs, and what it stored does not depend on the run."""

from contextlib import closing
from pathlib import Path

import apsw
import pytest

from cavemem_mcp.store import files
from tests.bench import bench_write


@pytest.mark.parametrize("sync_seconds", [0.0, 0.0001])
def test_a_tiny_run_prints_every_way_and_stores_the_same_again(sync_seconds: float) -> None:
    samples, stored = bench_write.run(bench_write.Plan(sync_seconds=sync_seconds, writes=4, rounds=1, processes=2))

    lines = bench_write.table("a disk", samples).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == [
        "| bare INSERT",
        "| remember, 1 caller",
        "| remember, 8 callers",
        "| remember, 64 callers",
        "| remember, 2 processes",
    ]
    assert stored == "5d737521f82a"


def test_a_slow_disk_sleeps_in_each_commit_and_only_while_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "a.db").touch()
    with bench_write.disk(0.0001) as slow, closing(files.connect(tmp_path / "a.db")) as connection:
        assert slow is not None
        write = bench_write.bare_insert(connection)
        before = slow.syncs
        bench_write.sequentially(write, ["a", "b", "c"])
        assert slow.syncs - before >= 3
    assert "slow-sync" not in apsw.vfs_names()
