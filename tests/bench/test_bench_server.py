"""The benchmark of round trips runs, and what it recalls does not depend on the run."""

from tests.bench import bench_server


def test_a_tiny_run_prints_both_transports_and_recalls_the_same_again() -> None:
    table, results = bench_server.run(400, calls=2, rounds=1)

    assert [line.split(" | ")[0] for line in str(table).splitlines()[2:]] == [
        "| stdio, 1 client",
        "| stdio, 32 clients",
        "| HTTP, 1 client",
        "| HTTP, 32 clients",
    ]
    assert results == "bad3ba267450"
