"""The public surface: what may be imported, which errors callers meet, and what the README and the help must name."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import cavemem_mcp
from cavemem_mcp import cli, errors

ROOT = Path(__file__).parent.parent

PUBLIC = [
    "CaveError",
    "Cavemem",
    "ForbiddenError",
    "Forgotten",
    "History",
    "Hit",
    "InvalidArgumentsError",
    "Memory",
    "MemoryTooLargeError",
    "OperationFailedError",
    "Recall",
    "Recovered",
    "Remembered",
    "StoreError",
    "StoreFullError",
    "Superseded",
    "__version__",
    "open_memory",
]


def _error_classes(base: type[errors.CaveError]) -> Iterator[type[errors.CaveError]]:
    for error in base.__subclasses__():
        yield error
        yield from _error_classes(error)


def _all_errors() -> list[errors.CaveError]:
    """Make one of each error; an operation's failure counts once for each operation."""
    made: list[errors.CaveError] = []
    for error in _error_classes(errors.CaveError):
        if issubclass(error, errors.OperationFailedError):
            made += [error(operation, "why") for operation in get_args(errors.Operation)]
        else:
            made.append(error("why"))
    return made


def test_the_public_names_are_exactly_these() -> None:
    assert cavemem_mcp.__all__ == PUBLIC == sorted(PUBLIC)
    assert len(PUBLIC) <= 20


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(cavemem_mcp, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Hits'"):
        getattr(cavemem_mcp, "Hits")  # noqa: B009 - a plain access is a type error, which is the point


def test_importing_the_package_imports_no_module_of_it() -> None:
    script = "import sys, cavemem_mcp; print([name for name in sys.modules if name.startswith('cavemem_mcp.')])"
    assert subprocess.check_output([sys.executable, "-c", script], cwd=ROOT, text=True) == "[]\n"


def test_every_error_has_its_own_id() -> None:
    ids = [error.error_id for error in _all_errors()] + [errors.INTERNAL_ERROR_ID]
    assert len(ids) == len(set(ids))
    assert all(id.startswith("cave_") for id in ids)


def test_only_a_memory_too_large_has_an_exit_code_of_its_own() -> None:
    exit_codes = {error.error_id: error.exit_code for error in _all_errors()}
    assert exit_codes.pop("cave_memory_too_large") == 65
    assert set(exit_codes.values()) == {1}


def test_every_error_is_drawn_in_the_tree() -> None:
    for error in _error_classes(errors.CaveError):
        assert f"── {error.__name__} " in (errors.__doc__ or "")


@pytest.mark.parametrize("operation", get_args(errors.Operation))
def test_every_operation_is_a_command_and_stands_in_the_readme(operation: str) -> None:
    readme = (ROOT / "README.md").read_text()
    assert operation in cli.COMMANDS
    assert f"| `cavemem_{operation}` |" in readme
    assert f"cavemem {operation} " in readme
    assert f"cavemem {operation} " in cli.HELP
