"""The benchmark of the hook runs."""

from tests.bench import bench_hook


def test_the_benchmark_of_the_hook_runs() -> None:
    measured = bench_hook.main(memories=50, runs=2)
    assert {name: len(taken) for name, taken in measured.items()} == {
        "session start": 2,
        "prompt": 2,
        "huge prompt": 2,
        "missing store": 2,
    }
