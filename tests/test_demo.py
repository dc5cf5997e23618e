"""The demo: a user's first command must work, and must notice when a step does not."""

import subprocess
import sys
from pathlib import Path

import pytest

from cavemem_mcp import demo

ROOT = Path(__file__).parent.parent


def test_the_demo_plays_through_all_operations(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "cavemem_mcp", "demo"],
        env={"HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        check=False,
        timeout=60,
    )
    shown = finished.stdout.decode()
    assert (finished.returncode, finished.stderr) == (0, b"")
    for operation in ("remember", "recall", "supersede", "history", "recover", "forget"):
        assert f"\n{operation}: " in shown
    assert "equal to what was remembered, byte for byte" in shown
    assert shown.endswith("Every step was as expected; the temporary store is gone.\n")
    assert list(tmp_path.iterdir()) == []


def test_a_step_that_is_not_as_expected_fails_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "CORRECTION", demo.FACTS[0])  # a text that supersede must refuse
    lines: list[str] = []
    assert demo.main(lines.append) == 1
    assert lines[-1] == "FAILED: it is not so that supersede succeeds"
