"""The benchmark of starts runs."""

from tests.bench import bench_start


def test_a_tiny_run_prints_both_eras_the_memory_and_every_command() -> None:
    tables = bench_start.run(rounds=1, idle=0)

    labels = [[line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[2:]] for table in tables]
    assert labels == [
        ["initialize", "server/discover"],
        ["at the first answer", "idle, vocabulary loaded"],
        ["(bare interpreter)", *(f"cavemem {command}" for command, *_ in bench_start.COMMANDS)],
    ]
