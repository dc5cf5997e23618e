"""Other JSON: minified; the focus shows parts with their paths."""

import json

import pytest

from cavemem_mcp.engine import compress

CONFIG = {
    "services": {
        f"service{number}": {
            "image": f"registry.example/app{number}",
            "limits": {"memory": f"{number}Mi"},
            "ports": [number, 80],
        }
        for number in range(120)
    }
}


def test_white_space_between_parts_goes() -> None:
    result = compress(json.dumps(CONFIG, indent=4))
    assert result.method == "minify"
    assert result.lossless
    assert result.text == json.dumps(CONFIG, separators=(",", ":"))


def test_minified_json_stays_as_it_is() -> None:
    text = json.dumps(CONFIG, separators=(",", ":"))
    assert compress(text).text is text


def test_the_focus_says_where_a_part_belongs() -> None:
    result = compress(json.dumps(CONFIG, indent=4), query_terms=("service77",), token_budget=250)
    line = next(line for line in result.text.split("\n") if "app77" in line)
    assert line.startswith("services")
    assert "service77" in line


def test_json_that_is_too_deep_is_left_alone() -> None:
    text = '{"a": ' * 5000 + "1" + "}" * 5000
    assert compress(text).content_type == "prose"
    assert compress('{"a": ' * 150 + "1" + "}" * 150).content_type == "json"


def test_one_value_a_line_stays_one_value_a_line() -> None:
    values = [{f"key {number}": [number, number]} for number in range(20)]
    result = compress("\n\n".join(map(json.dumps, values)))
    assert result.method == "minify"
    assert [json.loads(line) for line in result.text.split("\n")] == values


@pytest.mark.parametrize("key", ["two\nlines", "half \ud800", "a.b"])
def test_a_key_that_could_be_misread_is_shown_as_a_string(key: str) -> None:
    values = {key: {f"k{number}": f"the value {number} of many" for number in range(200)}}
    result = compress(json.dumps(values, indent=1), query_terms=("150",), token_budget=300)
    line = next(line for line in result.text.split("\n") if "value 150" in line)
    assert line.startswith(json.dumps(key) + ": ")
