"""MCP Inspector's web page, in a real browser, on our server."""

import json
import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.live import free_port

ROOT = Path(__file__).parent.parent.parent
PAGE_SECONDS_MAX = 240


@contextmanager
def _inspector(environment: dict[str, str], folder: Path) -> Generator[str]:
    """Serve the page for our configuration and give its address."""
    settings = {
        "MCP_AUTO_OPEN_ENABLED": "false",
        "HOST": "127.0.0.1",
        "CLIENT_PORT": str(free_port()),
        "MCP_SANDBOX_PORT": str(free_port()),
        "MCP_INSPECTOR_SECRET_STORE": "memory",
    }
    with subprocess.Popen(
        ["mcp-inspector", "--web", "--config", str(ROOT / "inspector" / "mcp.json")],
        env=environment | settings,
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    ) as page:
        assert page.stdout is not None
        try:
            yield next(line.strip() for line in page.stdout if "MCP_INSPECTOR_API_TOKEN=" in line)
        finally:
            page.terminate()


def test_a_person_remembers_and_recalls_on_the_page(environment: dict[str, str], tmp_path: Path) -> None:
    browser = shutil.which("chromium")
    if browser is None and not os.environ.get("CI"):
        pytest.skip("chromium is not installed")
    assert browser is not None
    with _inspector(environment, tmp_path) as address:
        driver = [str(Path(__file__).with_name("inspector_page.mjs")), address, browser, str(tmp_path / "page.png")]
        printed = subprocess.check_output(["node", *driver], env=environment, text=True, timeout=PAGE_SECONDS_MAX)

    shown = json.loads(printed)
    assert "at most 262144 fit in one memory" in shown["refused"]
    assert "mem_3aeaeb1b724a5037" not in shown["recalledBefore"]
    assert "mem_3aeaeb1b724a5037" in shown["remembered"]
    assert "mem_3aeaeb1b724a5037" in shown["recalled"]
    assert "Webshop: deploys on Tuesday, because Friday broke billing." in shown["recalled"]
    assert (tmp_path / "inspected" / "mem" / "mem.db").exists()
