"""How hard the fault tests try, where their chance comes from, and the figures that they print at the end."""

import os
import random
from collections import Counter
from collections.abc import Callable

import pytest

SEED = pytest.StashKey[int]()
FIGURES = pytest.StashKey[Counter[str]]()


def pytest_configure(config: pytest.Config) -> None:
    chosen: int | None = config.getoption("--seed")
    config.stash[SEED] = int.from_bytes(os.urandom(4)) if chosen is None else chosen
    config.stash[FIGURES] = Counter()


@pytest.fixture
def sized(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """Return what chooses between an amount for the short form, which is part of all tests, and one for `--long`."""
    is_long = request.config.getoption("--long") is True
    return lambda short, long: long if is_long else short


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Return a source of chance of this test's own; a failed test shows how to repeat it."""
    seed = request.config.stash[SEED]
    print(f"repeat with: python -m pytest --seed {seed} '{request.node.nodeid}'")
    return random.Random(f"{seed} {request.node.nodeid}")


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Counter[str]:
    """Return the counts that are shown when all tests have run: what was injected and what was checked."""
    return request.config.stash[FIGURES]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if counts := config.stash[FIGURES]:
        terminalreporter.section(f"faults survived (seed {config.stash[SEED]})")
        for name, count in sorted(counts.items()):
            terminalreporter.line(f"{count:>9,}  {name}")
