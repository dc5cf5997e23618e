"""JSON records: columns once, one row a record."""

import json
import re

from cavemem_mcp.engine import compress

ROWS = [
    {"id": number, "name": f"User {number}", "kind": "human", "at": {"city": "Oslo", "floor": number}}
    for number in range(9)
]


def test_columns_are_named_once_and_constants_stated_once() -> None:
    result = compress(json.dumps(ROWS, indent=2))
    assert result.method == "records"
    assert result.lossless
    assert result.text.split("\n")[:4] == [
        "[… JSON: 9 rows; ~ is missing]",
        "always\tkind=human\tat.city=Oslo",
        "id\tname\tat.floor",
        "0\tUser 0\t0",
    ]


def test_what_is_around_the_list_stays() -> None:
    text = compress(json.dumps({"total": 9, "data": {"rows": ROWS}, "next": "abc"}, indent=2)).text
    assert '{"total":9,"data":{"rows":[]},"next":"abc"}' in text
    assert 'of "data.rows"' in text


def test_strings_that_look_like_something_else_are_quoted_and_missing_values_marked() -> None:
    rows: list[dict[str, object]] = [
        {"v": "7", "w": 7},
        {"v": "null", "w": None},
        {"v": "", "w": "~"},
        {"v": "a b", "w": [1, {"x": "y z"}]},
        {"v": "plain"},
        {"v": 1.50, "w": {}},
    ]
    lines = compress(json.dumps(rows * 5, indent=4)).text.split("\n")
    assert {line.replace("\t", " ").replace("|", " ") for line in lines[2:]} >= {
        '"7" 7',
        '"null" null',
        '"" "~"',
        "plain ~",
        "1.5 {}",
    }


def test_the_focus_keeps_the_columns_and_names_the_records_left_out_by_line() -> None:
    rows = [{"id": number, "name": f"user{number}", "note": f"note of {number * 7919 % 1000}"} for number in range(500)]
    result = compress(json.dumps(rows, indent=2), query_terms=("user321",), token_budget=400)
    assert "user321" in result.text
    assert result.text.split("\n")[0].startswith("[… JSON: 500 rows")
    assert "id name note" in result.text.replace("\t", " ").replace("|", " ")
    assert re.search(r"^\[… L1-[0-9]+ · [0-9]+ tok\]$", result.text, re.MULTILINE)
    assert re.search(r"^\[… L[0-9]+-2502 · [0-9]+ tok\]$", result.text, re.MULTILINE)


def test_a_budget_too_small_for_the_columns_shows_the_record_as_it_is() -> None:
    rows = [{"id": number, "name": f"user{number}", "note": f"note of {number * 7919 % 1000}"} for number in range(500)]
    result = compress(json.dumps(rows, indent=2), query_terms=("user321",), token_budget=120)
    assert '"name": "user321"' in result.text


def test_records_with_hardly_a_key_in_common_are_no_table() -> None:
    assert compress(json.dumps([{f"key{number}": number} for number in range(200)], indent=2)).method == "minify"


def test_long_values_inside_records_are_cut_by_sentences() -> None:
    body = " ".join(f"Sentence number {number} says nothing of interest." for number in range(120))
    rows = [{"id": number, "body": body.replace("Sentence", f"Issue {number}")} for number in range(5)]
    rows[3]["body"] = body.replace("number 77 says nothing", "77 names the culprit, which is nothing")
    result = compress(json.dumps(rows), query_terms=("culprit",), token_budget=300)
    assert "culprit" in result.text
    assert result.tokens_after <= 300
