"""A store with something of everything, and what must be true of it after any fault."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from cavemem_mcp import Cavemem, Memory, open_memory
from cavemem_mcp.store.diagnosis import damage, diagnose_index, disorder
from cavemem_mcp.store.reading import observing

LONG: Final = "\n".join(
    f"2026-01-01 12:00:{n % 60:02d} INFO request {n} took worker {n % 7} {n} ms" for n in range(300)
)
QUERY: Final = "Which request took which worker how long?"


class Sample(NamedTuple):
    """What a sample store holds, by id, and the handle of its long memory."""

    folder: Path
    old: str
    current: str
    short: str
    long: str
    handle: str

    def copied_to(self, folder: Path) -> "Sample":
        """Copy the whole folder to the place of another."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder, folder)
        return self._replace(folder=folder)


def make_sample(folder: Path) -> Sample:
    """Fill a new store: a chain of two, a short memory, and a long one whose original is kept."""
    with closing(open_memory(folder)) as memory:
        old = memory.remember("The harbour opens at six.").id
        current = memory.supersede(old, "The harbour opens at seven.").id
        short = memory.remember("Zoë reviews before ten.").id
        long = memory.remember(LONG).id
        for number in range(20):
            memory.remember(f"Pier {number} is made of wood and stone.")
        (hit,) = memory.recall(QUERY, limit=1).hits
        assert hit.recovery_handle
        return Sample(folder, old, current, short, long, hit.recovery_handle)


CRASH: Final = """
import os, sys
from pathlib import Path
from cavemem_mcp import open_memory

memory = open_memory(Path(sys.argv[1]))
for handle in sys.argv[2:]:
    memory.recovery.recover(handle)
memory.remember("The crane was painted before the crash.")
os.kill(os.getpid(), 9)
"""
"""Leaves a log behind, with a memory that is nowhere else."""


def crash(sample: Sample) -> None:
    """Let a program die that has the sample open and has just remembered something."""
    died = subprocess.run([sys.executable, "-c", CRASH, str(sample.folder), sample.handle], check=False, timeout=60)
    assert died.returncode == -signal.SIGKILL
    assert (sample.folder / "mem.db-wal").stat().st_size


def versions(memory: Cavemem) -> list[Memory]:
    with memory.store.read() as snapshot:
        return list(snapshot.memories())


def assert_readable(memory: Cavemem, sample: Sample) -> None:
    """Read in every way what no fault may take away."""
    assert [hit.id for hit in memory.recall("When does the harbour open?").hits][:1] == [sample.current]
    assert [version.id for version in memory.history(sample.old).history] == [sample.old, sample.current]
    assert memory.recover(sample.handle).text == LONG


def assert_sound(folder: Path) -> None:
    """Assert that the pages are whole and the index is as a fresh one, of a store that nobody has open here."""
    with observing(folder / "mem.db") as connection:
        assert damage(folder / "mem.db", connection) == disorder(connection) == []
        assert diagnose_index(connection).differences == ()


def contents(folder: Path, names: Sequence[str] = ()) -> dict[str, bytes]:
    """Return every file's bytes, or those of some."""
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.is_file() and path.name in (names or path.name)
    }
