"""Test and build logs: runs of passes become counts, everything else stays."""

import pytest

from cavemem_mcp.engine import compress

FAULTS = [
    "tests/test_a.py::test_sum FAILED [ 50%]",
    "E   assert 3 == 4",
    "ERROR tests/test_b.py - ImportError",
    "warning: unused variable `x`",
    "DeprecationWarning: use y",
    "=== 1 failed, 60 passed, 1 warning in 0.52s ===",
]
PASSES = [f"tests/test_a.py::test_case_{number} PASSED [ {number}%]" for number in range(60)]


def test_failures_errors_warnings_and_the_summary_stay_whole() -> None:
    lines = [*PASSES[:30], *FAULTS[:2], *PASSES[30:], *FAULTS[2:]]
    result = compress("\n".join(lines))
    shown = result.text.split("\n")
    assert [line for line in shown if not line.startswith("[… ")] == FAULTS
    assert shown[0].startswith("[… L1-30 · 30 passed · ")


@pytest.mark.parametrize(
    "fault",
    [
        "FAILED tests/test_b.py::test_case_{0} - assert {0} == {1}",
        "ERROR tests/test_b.py::test_case_{0} - ValueError: {1}",
        "E       item {0} differs: {1}",
        "src/lib{0}.rs:{1}: warning: unused variable",
        "ValueError: cell {0} holds {1}",
        "--- FAIL: TestCase{0} (0.{1}s)",
        "not ok {0} - case {1}",
        "test parser::case_{0} ... FAILED",
        "  {0}) adds {1} numbers",
        "  ✕ adds {0} numbers ({1} ms)",
        "tests/test_a.py:{0}: DeprecationWarning: use y{1}",
    ],
)
def test_faults_that_differ_in_numbers_alone_all_stay(fault: str) -> None:
    faults = [fault.format(number, number * 7) for number in range(1, 12)]
    text = compress("\n".join([*PASSES, *faults])).text
    assert "\n".join(faults) in text


def test_a_pass_that_the_query_asks_for_stays() -> None:
    result = compress("\n".join([*PASSES, *FAULTS]), query_terms=("case", "17"))
    assert PASSES[17] in result.text


def test_build_lines_that_mention_an_error_stay() -> None:
    lines = [f"   Compiling crate{number} v1.0.{number}" for number in range(20)]
    lines[7] = "   Compiling crate7 v1.0.7 (build error, retrying)"
    assert lines[7] in compress("\n".join(lines)).text


def test_a_name_that_only_ends_like_a_fault_is_none() -> None:
    lines = [f"   Compiling crate{number}-thiserror v1.0.{number}" for number in range(20)]
    assert compress("\n".join([*lines, "done"])).text.startswith("[… L1-20 · 20 passed · ")


def test_lines_that_differ_in_numbers_alone_keep_the_first_and_the_last() -> None:
    steps = [f"step {number} of the build took {number * 3} s" for number in range(40)]
    shown = compress("\n".join([*PASSES, *steps, *FAULTS])).text.split("\n")
    assert steps[0] in shown
    assert steps[-1] in shown
    assert steps[20] not in shown
    assert "[… L62-99 · 38 like L61 · " in "\n".join(shown)


def test_lines_made_of_numbers_are_data() -> None:
    numbers = [f"{number * 7919 % 1000} {number}" for number in range(40)]
    text = compress("\n".join([*PASSES, *numbers, *FAULTS])).text
    assert "\n".join(numbers) in text
