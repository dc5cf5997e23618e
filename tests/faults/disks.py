"""Disks of our own that can be full or read-only, and another user, for whom permissions count."""

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

BLOCK: Final = 4096
NOBODY: Final = 65534


class Disk:
    """A disk in memory, mounted at a folder."""

    def __init__(self, at: Path) -> None:
        self.at = at
        self._filler = at / "filler"

    def fill(self, blocks_left: int) -> None:
        """Use up all but so many blocks."""
        with self._filler.open("wb", buffering=0) as filler:
            with suppress(OSError):
                while filler.write(bytes(BLOCK)):
                    pass
            filler.truncate(max(filler.tell() - blocks_left * BLOCK, 0))

    def free(self) -> None:
        """Give back what `fill` used up."""
        self._filler.unlink(missing_ok=True)

    def remount(self, option: str) -> None:
        """Make it read-only (`ro`) or writable (`rw`)."""
        subprocess.run(["mount", "-o", f"remount,{option}", str(self.at)], check=True)


@contextmanager
def mounted(at: Path, size: str) -> Generator[Disk]:
    """Mount a new disk; skip the test where that is not allowed."""
    at.mkdir()
    arguments = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(at)]
    if os.geteuid() != 0 or subprocess.run(arguments, capture_output=True, check=False).returncode:
        pytest.skip("a disk of one's own needs root, and no container that forbids mounting")
    try:
        yield Disk(at)
    finally:
        subprocess.run(["umount", str(at)], check=True)


@contextmanager
def permissions_that_count() -> Generator[None]:
    """Be nobody in particular for a while: root may do whatever permissions forbid."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
