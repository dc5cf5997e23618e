"""A writer that is killed loses nothing that it acknowledged."""

import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from cavemem_mcp import open_memory

WRITER = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from cavemem_mcp import open_memory

memory = open_memory(Path(sys.argv[1]))

def write(caller):
    number = 0
    while True:
        stored = memory.remember(f"caller{caller} fact{number} of the quay")
        sys.stdout.write(stored.id + chr(10))
        sys.stdout.flush()
        number += 1

with ThreadPoolExecutor(8) as callers:
    list(callers.map(write, range(8)))
"""


@pytest.mark.parametrize("acknowledged_min", [1, 37, 150])
def test_an_acknowledged_memory_survives_the_kill_of_its_writer(
    tmp_path: Path, acknowledged_min: int, figures: Counter[str]
) -> None:
    folder = tmp_path / "mem"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    acknowledged = [writer.stdout.readline().decode().strip() for _ in range(acknowledged_min)]
    writer.kill()
    rest = writer.communicate()[0].decode().split("\n")
    acknowledged += rest[:-1]  # the last line may be torn
    with closing(open_memory(folder)) as memory:
        for id in acknowledged:
            assert memory.history(id).history[0].id == id
        found = memory.recall("caller3 fact0 quay", limit=1000, token_budget=None)
        assert found.hits or acknowledged_min == 1
    figures["writers killed"] += 1
    figures["acknowledged writes checked after a kill"] += len(acknowledged)
