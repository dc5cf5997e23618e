"""Other projects' programs from npm, at pinned versions, and our command installed for them to start."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PEERS = Path(__file__).parent
ROOT = PEERS.parent.parent


@pytest.fixture(scope="session")
def peers_path() -> str:
    """Return a PATH on which the programs of both package.json files stand first."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folders = [PEERS, ROOT / "inspector"]
    for folder in folders:
        quiet = ["--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run(["npm", "install", "--prefix", str(folder), *quiet], check=True, timeout=900)
    return os.pathsep.join(
        [*(str(folder / "node_modules" / ".bin") for folder in reversed(folders)), os.environ["PATH"]]
    )


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """Return the path of a `cavemem` that runs these sources, as installers write it."""
    path = tmp_path / "bin" / "cavemem"
    path.parent.mkdir()
    path.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from cavemem_mcp.cli import main\nsys.exit(main())\n"
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def environment(peers_path: str, command: Path, tmp_path: Path) -> dict[str, str]:
    """Return the environment of a user with a new home folder who has `cavemem` and the peers."""
    home = tmp_path / "home"
    home.mkdir()
    return {"HOME": str(home), "PATH": f"{command.parent}{os.pathsep}{peers_path}", "TMPDIR": str(tmp_path)}
