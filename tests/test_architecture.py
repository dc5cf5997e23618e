"""The shape of the code: who may import whom, how long things may be, and what stays out of a quick start."""

import ast
import fnmatch
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "cavemem_mcp"

RANKS = (
    "clients",
    "errors",
    "calls",
    "model",
    "terms",
    "bm25",
    "tokens",
    "packing",
    "engine",
    "store",
    "recovery",
    "doctor",
    "upkeep",
    "chains",
    "service",
    "overview",
    "formats",
    "portability",
    "hook",
    "credentials",
    "settings",
    "auth",
    "oauth",
    "stores",
    "lines",
    "resources",
    "server",
    "transport",
    "limits",
    "telemetry",
    "http",
    "demo",
    "integrations",
    "console",
    "commands",
    "cli",
    "__main__",
)
"""Modules and folders of the package; each imports only from itself and from those before it."""

THIRD_PARTIES = {
    "anyio": {"demo", "http", "limits", "lines", "oauth", "resources", "server", "stores", "transport"},
    "apsw": {"store", "recovery"},
    "httpx2": {"oauth"},
    "jwt": {"oauth"},
    "mcp": {"auth", "demo", "http", "oauth", "resources", "server", "telemetry", "transport"},  # the demo is a client
    "mcp_types": {"http", "resources", "server", "telemetry", "transport"},
    "opentelemetry": {"telemetry"},
    "pydantic": {"auth", "resources", "server", "transport"},
    "starlette": {"auth", "http", "limits", "telemetry"},
    "toktok": {"tokens"},
    "uvicorn": {"http", "limits"},
    "zstandard": {"recovery"},
}
"""Which modules may import what is not Python's own."""

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
SLOW_IMPORTS = {
    "anyio",
    "httpx2",
    "jwt",
    "mcp",
    "opentelemetry",
    "pydantic",
    "starlette",
    "toktok",
    "uvicorn",
    "zstandard",
}

TOP_LEVEL = {
    ".ci",
    ".git",
    ".gitignore",
    "CHANGELOG.md",
    "LICENSE",
    "PKG-INFO",  # in a source distribution
    "README.md",
    "cavemem_mcp",
    "inspector",
    "pyproject.toml",
    "requirements-test.txt",
    "server.json",
    "tests",
}


class Import(NamedTuple):
    """One import statement: the room of the package it stands in, and the module it names."""

    room: str
    module: str


MODULES = sorted(PACKAGE.rglob("*.py"))
SOURCES = MODULES + sorted(
    path
    for folder in ("inspector", "tests")
    for path in (ROOT / folder).rglob("*.py")
    if "node_modules" not in path.parts
)


def _room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(path: Path) -> Iterator[Import]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (Import(_room(path), alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "cavemem_mcp":
            yield from (Import(_room(path), f"cavemem_mcp.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield Import(_room(path), node.module or "")


ALL_IMPORTS = [found for path in MODULES if path != PACKAGE / "__init__.py" for found in _imports(path)]


def test_every_module_has_a_rank() -> None:
    assert {_room(path) for path in MODULES} - {"__init__"} <= set(RANKS)


def test_a_module_imports_only_from_itself_and_from_those_before_it() -> None:
    for room, module in ALL_IMPORTS:
        package, _, inner = module.partition(".")
        target = inner.partition(".")[0]
        if package == "cavemem_mcp" and target != "__version__":
            assert RANKS.index(target) <= RANKS.index(room), f"{room} imports {module}: move the code, not the rule"


def test_third_parties_are_imported_only_where_they_belong() -> None:
    for room, module in ALL_IMPORTS:
        package = module.partition(".")[0]
        if package != "cavemem_mcp" and package not in sys.stdlib_module_names:
            assert room in THIRD_PARTIES.get(package, set()), f"{room} imports {module}"


def test_only_the_command_line_and_the_clients_of_it_read_the_environment() -> None:
    for path in MODULES:
        names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        names |= {alias for found in _imported_names(path) for alias in found}
        if names & {"environ", "environb", "getenv", "getenvb"}:
            assert _room(path) in {"cli", "clients"}, f"{path.name} reads the environment"


def _imported_names(path: Path) -> Iterator[set[str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield {alias.name for alias in node.names}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_and_functions_are_short(path: Path) -> None:
    source = path.read_text()
    assert len(source.splitlines()) <= MODULE_LINES_MAX
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{node.name} has {lines} lines"


@pytest.mark.parametrize("arguments", [["remember", "a fact"], ["history", "mem_0"], ["forget", "mem_0"], ["help"]])
def test_a_debug_command_imports_nothing_slow(arguments: list[str], tmp_path: Path) -> None:
    script = (
        "import sys; from cavemem_mcp.cli import main; main();"
        "print('|', *sorted(name for name in sys.modules if '.' not in name))"
    )
    printed = subprocess.check_output(
        [sys.executable, "-c", script, *arguments], cwd=ROOT, env={"CAVEMAN_HOME": str(tmp_path)}, text=True
    )
    assert not SLOW_IMPORTS & set(printed.rpartition("|")[2].split())


def test_the_top_level_holds_only_what_belongs_there() -> None:
    ignored = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text().split()]
    names = {path.name for path in ROOT.iterdir()}
    assert {name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in ignored)} <= TOP_LEVEL
