"""What holds for every text, whatever it is."""

import itertools
import os
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cavemem_mcp import tokens
from cavemem_mcp.engine import Compressible, compress, detect, focus
from cavemem_mcp.engine.units import Form, Source
from cavemem_mcp.terms import query_terms
from tests.engine import inputs

MARKER = re.compile(r"\[… L([0-9]+)(?:-([0-9]+))?(?: · [^\]\n]*?)? · ([0-9]+) tok\]")
QUERIES = ["", "token", "error code of job 7", "which email has Ada Novak", "retries in rotate", "表示"]
queries = st.sampled_from(QUERIES).map(query_terms)
budgets = st.none() | st.integers(0, 60) | st.integers(0, 3000)


@inputs.checked
@given(inputs.texts(), queries, budgets)
def test_a_result_is_within_budget_never_dearer_and_counted_exactly(
    text: str, query: tuple[str, ...], budget: int | None
) -> None:
    result = compress(text, query_terms=query, token_budget=budget)
    assert result.tokens_before == tokens.count(text)
    assert result.tokens_after == tokens.count(result.text)
    if budget is not None:
        assert result.tokens_after <= budget
    if result.text != text:
        assert result.method != "none"
        assert result.tokens_after <= result.tokens_before * 0.95 or (
            budget is not None and budget < result.tokens_before
        )
    else:
        assert result.text is text


@inputs.checked
@given(inputs.texts(), queries, budgets)
def test_compressing_a_result_again_returns_it(text: str, query: tuple[str, ...], budget: int | None) -> None:
    once = compress(text, query_terms=query, token_budget=budget).text
    again = compress(once, query_terms=query, token_budget=budget)
    assert again.text == once
    assert again.method == "none"


@inputs.checked
@given(inputs.texts(), queries, budgets)
def test_the_same_call_gives_the_same_result(text: str, query: tuple[str, ...], budget: int | None) -> None:
    first = compress(text, query_terms=query, token_budget=budget)
    assert compress(text, query_terms=list(query), token_budget=budget) == first


@inputs.checked
@given(inputs.texts(), queries, st.lists(budgets, min_size=2, max_size=3))
def test_a_text_asked_for_with_one_budget_after_another_gives_what_each_gives_alone(
    text: str, query: tuple[str, ...], in_turn: list[int | None]
) -> None:
    compressible = Compressible(text, query)
    for budget in in_turn:
        assert compressible.compressed(budget) == compress(text, query_terms=query, token_budget=budget)


def test_another_process_with_another_hash_seed_and_locale_gives_the_same_bytes() -> None:
    program = (
        "import hashlib\n"
        "from cavemem_mcp.engine import compress\n"
        "from tests.bench.engine_texts import small_set\n"
        "from cavemem_mcp.terms import query_terms\n"
        "digest = hashlib.sha256()\n"
        "for text in small_set():\n"
        "    for budget in (None, 2000, 300):\n"
        "        terms = query_terms(text.questions[0].query)\n"
        "        digest.update(compress(text.text, query_terms=terms, token_budget=budget).text.encode())\n"
        "print(digest.hexdigest())\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": locale, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
            capture_output=True,
        ).stdout
        for seed, locale in (("1", "C"), ("2", "C.UTF-8"))
    }
    assert len(digests) == 1


@inputs.checked
@given(inputs.parts() | inputs.spoilt() | inputs.lines, queries, budgets)
def test_every_omission_is_a_marker_and_a_marker_claims_what_was_there(
    text: str, query: tuple[str, ...], budget: int | None
) -> None:
    result = compress(text, query_terms=query, token_budget=budget)
    if result.method == "none" or "[… " in text:
        return
    if result.lossless or (budget is not None and budget < 60):
        return
    assert "[… " in result.text
    lines = text.split("\n")
    before = 0
    for match in MARKER.finditer(result.text):
        first, last, count = int(match[1]), int(match[2] or match[1]), int(match[3])
        assert before <= first <= last <= len(lines)
        assert 0 < count <= tokens.count("\n".join(lines[first - 1 : last])) + 2
        before = first


@inputs.checked
@given(inputs.parts(), queries, st.integers(100, 3000))
def test_kept_lines_are_lines_of_the_source_in_its_order(text: str, query: tuple[str, ...], budget: int) -> None:
    result = compress(text, query_terms=query, token_budget=budget)
    if result.content_type not in ("prose", "code", "log", "test log", "diff") or result.lossless:
        return
    at = 0
    for line in result.text.split("\n"):
        if not line.startswith("[… "):
            found = text.find(line, at)
            assert found >= 0, line
            at = found


@inputs.checked
@given(inputs.parts("prose") | inputs.parts("code", "log", "test log") | inputs.lines, queries, st.integers(60, 900))
def test_every_line_is_shown_or_in_the_range_of_a_marker(text: str, query: tuple[str, ...], budget: int) -> None:
    result = compress(text, query_terms=query, token_budget=budget)
    if result.content_type not in ("prose", "code", "log", "test log") or result.lossless:
        return
    if "blank or rule lines" in result.text or "[… " in text:
        return
    marked = {
        number
        for match in MARKER.finditer(result.text)
        for number in range(int(match[1]), int(match[2] or match[1]) + 1)
    }
    for number, line in enumerate(text.split("\n"), 1):
        assert number in marked or line.strip() in result.text


@inputs.checked
@given(inputs.texts(), queries)
def test_no_type_raises_whatever_the_text(text: str, query: tuple[str, ...]) -> None:
    _, form = detect.form(Source(text), query)
    units = form.units()
    assert all(0 <= unit.start <= unit.end <= len(form.source.text) for unit in units)
    assert all(before.start <= after.start for before, after in itertools.pairwise(units))


@pytest.mark.parametrize(
    "text", [":7 INFO a\n,8 INFO b\n.9 INFO c\n:1 INFO d", "<html><nav>a", "<html><!-- a", "<html><![<p>"]
)
def test_no_type_raises_on_texts_that_once_were_a_problem(text: str) -> None:
    assert detect.form(Source(text), ())[1].units() is not None


def test_a_failing_type_leaves_the_text_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(source: Source, query_terms: object) -> Form:
        raise RecursionError(source.text[:1])

    monkeypatch.setattr(detect, "TYPES", tuple(entry._replace(form=fail) for entry in detect.TYPES))
    for text in inputs.BASE.values():
        result = compress(text)
        assert result.text is text
        assert result.method == "none"
        cut = compress(text, query_terms=("token",), token_budget=500)
        assert 0 < cut.tokens_after <= 500


def test_a_failing_focus_still_keeps_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(form: Form, query_terms: object, token_budget: int) -> str:
        raise ValueError(form.method, token_budget)

    monkeypatch.setattr(focus, "select", fail)
    for text in inputs.BASE.values():
        cut = compress(text, query_terms=("token",), token_budget=150)
        assert 0 < cut.tokens_after <= 150


HUGE = {
    "one line": "word " * 52_000,
    "one word": "x" * 262_144,
    "blank lines": "\n" * 262_144,
    "deep JSON": "[" * 5000 + "]" * 5000,
    "deep JSON objects": '{"a":' * 5000 + "1" + "}" * 5000,
    "open JSON": "[" * 262_144,
    "quotes": '"' * 262_144,
    "escaped quotes": '\\"' * 131_000,
    "single quotes": "'" * 262_144,
    "tags": "<html>" + "<a b='" * 40_000,
    "comments": "<html>" + "<!--" * 60_000,
    "scripts": "<html>" + "<script>" * 30_000,
    "escapes": "\x1b[" * 131_000,
    "escape digits": "\x1b[" + "1;" * 131_000,
    "carriage returns": "a\r" * 131_000,
    "tabs": "\t" * 262_144,
    "commas": "a,b\n" + "," * 262_000,
    "numbers": "7\n" * 131_000,
    "same lines": "the same line 7\n" * 16_000,
    "code openers": "import a\nimport b\nimport c\n" + "/*" * 131_000,
    "code quotes": "import a;\nimport b;\nimport c;\n" + '"""' * 87_000,
    "braces": "package a;\nimport b;\nimport c;\n" + "{" * 100_000 + "}" * 100_000,
    "digits": "1" * 262_144,
    "han": "表示設定は画面の右上にある" * 6700,
    "emoji": "😀" * 65_000,
    "stamps": "10:00:00 INFO " + "a1 " * 80_000,
    "hunk": "--- a\n+++ b\n@@ -1 +1 @@\n" + "+x\n" * 80_000,
    "headings": "# a\n" * 65_000,
    "code in one line": "import a;\nimport b;\nimport c;\n" + "function a(){b()}" * 15_000,
    "braces in one line": "import a;\nimport b;\nimport c;\n" + "{}" * 130_000,
    "table cells": "<html><table><tr>" + "<td>x" * 52_000,
    "links in links": "<html>" + "<a>y" * 32_000 + "</a>" * 32_000,
    "attributes": "<html><a " + "b=' " * 65_000 + ">",
    "wide JSON records": "[" + ",".join(["{" + ",".join(f'"{n}":1' for n in range(9000)) + "}"] * 3) + "]",
    "wide CSV": "\n".join([",".join(f"c{n}" for n in range(20_000)), *[",".join("1" * 20_000)] * 3]),
    "deep JSON list": "[" * 199 + ",".join("1" * 130_000) + "]" * 199,
    "log words": "\n".join(f"10:00:00 INFO {f'a{chr(97 + n % 26)} 1 x 1 ' * 240}{n}" for n in range(130)),
}


@pytest.mark.parametrize("name", HUGE)
@pytest.mark.parametrize("budget", [None, 2000, 5])
def test_the_largest_memory_of_any_shape_comes_back(name: str, budget: int | None) -> None:
    result = compress(HUGE[name], query_terms=("line", "a", "x"), token_budget=budget)
    assert result.tokens_after <= result.tokens_before
    assert budget is None or result.tokens_after <= budget


@pytest.mark.parametrize("text", ["", "x", " ", "\n", "\r", "\r\n", "{", "[]", "{}", "\0", "😀", "\u2028", "[… "])
@pytest.mark.parametrize("budget", [None, 0, 1, 3])
def test_the_smallest_texts_pass(text: str, budget: int | None) -> None:
    result = compress(text, token_budget=budget)
    assert result.text in (text, "") or budget is not None
    assert budget is None or result.tokens_after <= budget
