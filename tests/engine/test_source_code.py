"""Source code: the skeleton, and the bodies that a query asks for."""

from cavemem_mcp.engine import compress

BODY = "\n".join(f"        value_{number} = compute(value, {number})  # {{ not a brace" for number in range(12))
PYTHON = f'''"""A module.

With more to say than its first line, in several sentences that nobody needs.
"""

import os

LIMIT = 3


class Store:
    """Keeps things."""

    @property
    def size(self) -> int:
        return 1

    def archive(
        self,
        value: int,
    ) -> None:
        """Archive a value.

        In a safe place.
        """
{BODY}
        text = """
not indented ( [
"""
        return text

    def restore(self, value: int) -> None:
{BODY.replace("compute", "fetch_again")}


def main() -> None:
{BODY.replace("        ", "    ")}
'''


def test_without_a_query_code_that_fits_stays_whole() -> None:
    assert compress(PYTHON).text is PYTHON
    assert compress(PYTHON, token_budget=5000).text is PYTHON
    assert compress(PYTHON, query_terms=("unheard",)).text is PYTHON


def test_the_bodies_that_a_query_asks_for_stay_and_others_become_markers() -> None:
    result = compress(PYTHON, query_terms=("restore", "fetch"))
    assert result.method == "skeleton"
    assert "fetch_again(value, 11)" in result.text
    assert "compute(value" not in result.text
    for kept in (
        "import os",
        "LIMIT = 3",
        '    """Keeps things."""',
        "    def size(self)",
        "        value: int,",
        "def main()",
    ):
        assert kept in result.text
    assert '"""Archive a value.' in result.text
    assert "safe place" not in result.text
    assert "not indented" not in result.text
    assert result.text.count("[… L") == 2


def test_a_skeleton_alone_is_for_a_text_that_exceeds_its_budget() -> None:
    result = compress(PYTHON, token_budget=400)
    assert result.method == "skeleton"
    assert "compute(" not in result.text


def test_braces_in_strings_and_comments_do_not_count() -> None:
    functions = "\n".join(
        f"export function step{number}(a) {{\n  const s = '}}';\n  // }} not the end\n  const r = `{{${{a}}`;\n"
        f"  return run{number}(s, r, a, 'a longer line so that leaving it out pays');\n}}\n"
        for number in range(9)
    )
    text = "import a from 'a';\n\nclass Box {\n  size() {\n    return 1;\n  }\n}\n\n" + functions
    result = compress(text, query_terms=("run7",))
    assert "return run7(s, r" in result.text
    assert "return run3(s" not in result.text
    assert "export function step3(a) {\n[… L" in result.text
    assert "  size() {\n    return 1;\n  }" in result.text


def test_code_whose_brackets_do_not_match_is_left_as_it_is() -> None:
    text = PYTHON + "\nbroken = (1,\n"
    assert compress(text, query_terms=("restore",)).content_type == "prose"
