"""The registry entry keeps the registry's rules, as far as `data/server_json_rules.json` restates them."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

ROOT = Path(__file__).parent.parent
ENTRY: dict[str, Any] = json.loads((ROOT / "server.json").read_text())
RULES: dict[str, Any] = json.loads((ROOT / "tests" / "data" / "server_json_rules.json").read_text())
VALIDATOR: Any = Draft7Validator(RULES)

MISTAKES: tuple[tuple[tuple[str | int, ...], object], ...] = (
    (("$schema",), "https://static.modelcontextprotocol.io/schemas/2025-07-09/server.schema.json"),
    (("name",), "cavemem-mcp"),
    (("description",), "x" * 101),
    (("description",), ""),
    (("version",), "latest"),
    (("version",), "^0.1.0"),
    (("status",), "active"),
    (("packages", 0, "version"), ">=0.1"),
    (("packages", 0, "registryType"), "PyPI"),
    (("packages", 0, "transport"), {"type": "stdio", "url": "http://127.0.0.1/mcp"}),
    (("packages", 1, "transport"), {"type": "streamable-http"}),
    (("packages", 1, "transport", "type"), "http"),
    (("packages", 1, "packageArguments", 0), {"type": "positional"}),
    (("packages", 1, "packageArguments", 1), {"type": "named", "value": "streamable-http"}),
    (("packages", 1, "packageArguments", 2, "default"), 8765),
    (("packages", 0, "environmentVariables", 0, "format"), "path"),
    (("packages", 0, "environmentVariables", 0), {"description": "no name"}),
)
"""Where an entry would go wrong, and the value there."""


def test_the_rules_are_a_schema_and_say_what_they_are() -> None:
    Draft7Validator.check_schema(RULES)
    assert "It is not that schema" in RULES["$comment"]


def test_the_entry_keeps_the_rules() -> None:
    assert [error.message for error in VALIDATOR.iter_errors(ENTRY)] == []
    assert [package["transport"]["type"] for package in ENTRY["packages"]] == ["stdio", "streamable-http"]


@pytest.mark.parametrize(("place", "value"), MISTAKES, ids=lambda part: str(part)[:60])
def test_a_mistake_in_the_entry_is_found(place: tuple[str | int, ...], value: object) -> None:
    entry = copy.deepcopy(ENTRY)
    parent: Any = entry
    for step in place[:-1]:
        parent = parent[step]
    parent[place[-1]] = value
    assert not VALIDATOR.is_valid(entry)


@pytest.mark.parametrize("field", ["name", "description", "version"])
def test_an_entry_without_a_required_field_is_refused(field: str) -> None:
    assert not VALIDATOR.is_valid({name: value for name, value in ENTRY.items() if name != field})
