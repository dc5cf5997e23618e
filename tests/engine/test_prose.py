"""Prose and Markdown: only spare lines and long exact repetition go."""

from cavemem_mcp.engine import compress

PARAGRAPHS = [
    f"Paragraph {number} has a [link](https://x.example/{number}) and *emphasis* of its own." for number in range(20)
]


def test_prose_without_spare_lines_is_the_original_string() -> None:
    text = "\n\n".join(PARAGRAPHS)
    assert compress(text).text is text


def test_runs_of_blank_lines_and_rule_lines_go_and_every_word_stays() -> None:
    text = "\n\n\n\n\n----------------------------------------\n\n\n\n".join(PARAGRAPHS)
    result = compress(text)
    legend, *lines = result.text.split("\n")
    assert legend.startswith("[… ")
    assert "blank or rule lines · " in legend
    assert [line for line in lines if line] == PARAGRAPHS


def test_fenced_code_keeps_its_blank_and_rule_lines() -> None:
    code = "```\na\n\n\n\n----------\nb\n```"
    text = "\n\n\n\n\n\n\n\n\n".join([*PARAGRAPHS[:9], code])
    assert code in compress(text).text


def test_long_exact_repetition_becomes_a_marker_that_names_the_copy() -> None:
    block = "\n".join(f"{text} It says the same again." for text in PARAGRAPHS[:6])
    result = compress(f"{block}\nbetween\n{block}\nend")
    assert result.lossless
    assert result.text.startswith(f"{block}\nbetween\n[… L8-13 = L1-6 · ")
    assert result.text.endswith(" tok]\nend")


def test_a_line_that_is_there_many_times_in_a_row_is_kept_once() -> None:
    text = "start\n" + "Waiting for the server to come up again.\n" * 200 + "end"
    result = compress(text)
    assert result.text.count("Waiting for the server") == 1
    assert "[… L3-201 = L2-200 · " in result.text


def test_repeated_numbers_are_data() -> None:
    text = "measured\n" + "7 8 9 10 11 12 13 14 15 16 17 18\n" * 60
    assert compress(text).text is text


def test_facts_in_a_list_of_equal_lines_all_stay() -> None:
    text = "\n".join(f"- server {number} has the address 10.0.0.{number * 3 % 250}" for number in range(100))
    assert compress(text).text is text


def test_the_focus_leaves_no_rule_line_out_without_a_marker() -> None:
    lines = [f"{text}\n\n---\n" if number % 2 else text for number, text in enumerate(PARAGRAPHS)]
    lines[7] = "The needle lies here.\n\n* * *\n"
    shown = compress("\n".join(lines), query_terms=("needle",), token_budget=150).text.split("\n")
    at = shown.index("The needle lies here.")
    assert shown[at + 1 : at + 3] == ["", "* * *"]


def test_a_heading_after_repeated_fences_is_in_the_outline() -> None:
    block = "\n".join(["```", *PARAGRAPHS[:5], "```", ""])
    filler = "\n\n".join(f"Filler {number} says {number * 7919 % 1000} of no use. " * 5 for number in range(90))
    text = "\n".join([block, "between", block, filler, "# A heading of its own", filler.replace("says", "tells")])
    assert "# A heading of its own" in compress(text, query_terms=("between",), token_budget=1000).text
