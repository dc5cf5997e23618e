"""Diffs: no change of a source file is lost; what is around it is short."""

from hypothesis import given
from hypothesis import strategies as st

from cavemem_mcp.engine import compress
from tests.engine import inputs

HEADER = "diff --git a/src/a.py b/src/a.py\nindex 123..456 100644\n--- a/src/a.py\n+++ b/src/a.py\n"


def _hunk(at: int, changes: list[str]) -> str:
    before = [f" context line {at} before {number}" for number in range(3)]
    after = [f" context line {at} after {number}" for number in range(3)]
    old = 6 + sum(line[0] == "-" for line in changes)
    new = 6 + sum(line[0] == "+" for line in changes)
    return "\n".join([f"@@ -{at},{old} +{at},{new} @@ def f():", *before, *changes, *after]) + "\n"


def test_one_line_of_context_and_one_header_line_stay() -> None:
    text = HEADER + _hunk(10, ["-old", "+new"])
    lines = compress(text).text.split("\n")
    assert lines[0].startswith("[… 7 lines of context and file headers · ")
    assert lines[1:] == [
        "diff --git a/src/a.py b/src/a.py",
        "@@ -10,7 +10,7 @@ def f():",
        " context line 10 before 2",
        "-old",
        "+new",
        " context line 10 after 0",
    ]


def test_context_that_the_query_asks_for_stays() -> None:
    text = HEADER + _hunk(10, ["-old", "+new"])
    shown = compress(text, query_terms=("before", "0")).text.split("\n")
    assert " context line 10 before 0" in shown
    assert " context line 10 after 2" not in shown


@inputs.checked
@given(
    st.lists(
        st.lists(st.sampled_from(["-x = 1", "+y = 2", "+", "-", "--- a/looks like a header", "+++ b"]), min_size=1),
        min_size=1,
    )
)
def test_no_changed_line_of_a_source_file_is_dropped(hunks: list[list[str]]) -> None:
    text = HEADER + "".join(_hunk(10 * (at + 1), changes) for at, changes in enumerate(hunks))
    shown = compress(text).text.split("\n")
    changes = [line for hunk in hunks for line in hunk]
    kept = [line for line in shown if line[:1] in ("+", "-") and line not in ("--- a/src/a.py", "+++ b/src/a.py")]
    assert kept == changes


def test_lock_files_become_counts_but_what_the_query_asks_for_stays() -> None:
    lock = "diff --git a/web/yarn.lock b/web/yarn.lock\n--- a/web/yarn.lock\n+++ b/web/yarn.lock\n@@ -1,0 +1,200 @@\n"
    text = (
        HEADER
        + _hunk(1, ["+kept"])
        + lock
        + "\n".join(f'+package{number} "1.{number}"' for number in range(200))
        + "\n"
    )
    whole = compress(text)
    assert "package" not in whole.text
    assert "generated +200 -0 · " in whole.text
    assert "+kept" in whole.text
    assert '+package77 "1.77"' in compress(text, query_terms=("package77",)).text
