"""The benchmark of moving memories runs, and what it moved does not depend on the run."""

from tests.bench import bench_move


def test_a_tiny_run_moves_every_memory_and_prints_each_way() -> None:
    table, exported = bench_move.run(40)

    assert [line.split(" | ")[0] for line in table.splitlines()[2:]] == ["| import", "| export", "| import again"]
    assert exported == bench_move.run(40)[1]
