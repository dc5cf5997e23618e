"""The benchmark of recall runs, and its results do not depend on the run."""

import pytest

from tests.bench import bench_recall, harness


def test_a_tiny_run_prints_every_family_and_the_same_results_again() -> None:
    table, results = bench_recall.run(50, queries=2, rounds=1)
    _, again = bench_recall.run(50, queries=2, rounds=1)

    lines = str(table).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == [
        f"| {family}" for family in bench_recall.Corpus(50).queries(1)
    ]
    assert results == again


def test_the_percentile_is_a_sample_that_so_many_do_not_exceed() -> None:
    samples = [float(number) for number in range(100, 0, -1)]

    assert harness.percentile(samples, 95) == 95
    assert harness.percentile([3.0], 95) == 3


def test_the_result_hash_changes_with_any_bit_of_a_score() -> None:
    assert harness.result_hash([("a", 0.1 + 0.2)]) != harness.result_hash([("a", 0.3)])


@pytest.mark.parametrize("way", ["recall", "FTS5"])
def test_ratios_compare_with_the_first_way(way: str) -> None:
    table = harness.Table(title="t", ways=["recall", "FTS5"])
    table.add("line", {"recall": [0.001], way: [0.003]})

    assert ("x3.0" in str(table)) is (way == "FTS5")
