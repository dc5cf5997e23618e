"""Lossless forms can be read back: an inverse, which the engine does not need, finds every value again."""

import csv
import json
import random

from hypothesis import given
from hypothesis import strategies as st

from cavemem_mcp.engine import compress, logs, minified, records, tables
from cavemem_mcp.engine.json_text import read
from cavemem_mcp.engine.units import Source
from tests.engine import inputs, inverses


def _csv_rows(text: str, delimiter: str) -> list[list[str]]:
    return [row for row in csv.reader((line + "\n" for line in Source(text).lines), delimiter=delimiter) if row]


@inputs.checked
@given(inputs.record_lists, st.sampled_from([None, 1, 2]), st.booleans())
def test_records_are_read_back(rows: list[dict[str, object]], indent: int | None, inside: bool) -> None:  # noqa: FBT001 - drawn
    value = {"total": 3, "data": {"a.b": rows}} if inside else rows
    text = json.dumps(value, indent=indent)
    source = Source(text)
    assert source.json is not None
    form = records.form(source, ())
    if form.method == "minify":
        assert read(form.text) == read(text)
    else:
        assert inverses.records_of(form.text) == (read(text), False)


@inputs.checked
@given(inputs.record_lists)
def test_records_one_a_line_are_read_back(rows: list[dict[str, object]]) -> None:
    text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    form = records.form(Source(text), ())
    values = [read(line) for line in text.split("\n")]
    if form.method == "minify":
        assert [read(line) for line in form.text.split("\n")] == values
    else:
        assert inverses.records_of(form.text) == (values, True)


@inputs.checked
@given(inputs.documents())
def test_minified_json_says_the_same_with_the_same_digits(text: str) -> None:
    form = minified.form(Source(text), ())
    assert read(form.text) == read(text)


def test_minified_json_keeps_numbers_escapes_and_repeated_keys_as_they_are_written() -> None:
    text = '{ "a" : 1.10, "a" : 1E400,\n\t"b\\u00e9 \\" x" : -0.0, "big" : 123456789012345678901234567890 }'
    assert minified.form(Source(text), ()).text == (
        '{"a":1.10,"a":1E400,"b\\u00e9 \\" x":-0.0,"big":123456789012345678901234567890}'
    )


log_lines = st.lists(
    st.sampled_from(
        [
            "2026-01-02T10:00:{0:02d}Z INFO job {0} done in {1}ms by {2}",
            "10:00:{0:02d} WARN queue {2} slow ×{1}",
            "{0} {1}",
            "|{0} ERROR {2}",
            "\tat main.py:{0}",
            "",
            "INFO same",
            "ERROR * {0}",
            "{2} {2} INFO {1} ×3",
        ]
    ).flatmap(
        lambda shape: st.builds(
            shape.format,
            st.integers(0, 59),
            st.integers(0, 10**6),
            st.sampled_from(["ann", "bob", "é7", "x-1", "10.0.0.1"]),
        )
    ),
    min_size=1,
    max_size=60,
)


@inputs.checked
@given(log_lines.map("\n".join) | inputs.lines.filter(lambda text: "[… " not in text) | log_lines.map("\r\n".join))
def test_logs_are_read_back_byte_by_byte(text: str) -> None:
    form = logs.form(Source(text), ())
    assert form.method == "none" or inverses.log_of(form.text) == text


cells = st.sampled_from(["", "same value", "7", "a,b", 'say "x"', "two\nlines", "é", " x ", "^"])


@inputs.checked
@given(st.lists(st.tuples(cells, cells, st.just("always"), cells), min_size=4, max_size=20), st.sampled_from(",\t;|"))
def test_tables_are_read_back_cell_by_cell(rows: list[tuple[str, ...]], delimiter: str) -> None:
    lines = [
        delimiter.join(('"' + cell.replace('"', '""') + '"') for cell in row) for row in (("id", "b", "c", "d"), *rows)
    ]
    text = "\n".join(lines)
    form = tables.form(Source(text), ())
    assert inverses.table_of(form.text, delimiter) == _csv_rows(text, delimiter)


def test_long_texts_of_every_lossless_type_are_read_back() -> None:
    seen: set[str] = set()
    for text in inputs.BASE.values():
        result = compress(text)
        if result.lossless and result.method != "none":
            seen.add(result.method)
            match result.method:
                case "records":
                    value, is_lines = inverses.records_of(result.text)
                    expected = [read(line) for line in text.split("\n")] if is_lines else read(text)
                    assert value == expected
                case "minify":
                    assert read(result.text) == read(text)
                case "templates":
                    assert inverses.log_of(result.text) == text
                case method:
                    assert method == "csv"
                    delimiter = "\t" if "\t" in text else ","
                    assert inverses.table_of(result.text, delimiter) == _csv_rows(text, delimiter)
    assert seen == {"records", "minify", "templates", "csv"}


def test_rows_that_do_not_fit_the_header_are_read_back_as_they_are() -> None:
    random_ = random.Random(1)
    rows = [f"{number},{random_.choice(['north', 'south'])},open,{random_.random():.3f}" for number in range(60)]
    rows[30] = "30,only two"
    text = "\n".join(["id,side,state,value", *rows])
    assert inverses.table_of(tables.form(Source(text), ()).text, ",") == _csv_rows(text, ",")
