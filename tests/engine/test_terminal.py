"""Terminal output: what is left on the screen."""

import pytest

from cavemem_mcp.engine import compress


def test_escapes_and_overwritten_drawings_go_and_the_last_drawing_stays() -> None:
    bar = "\r".join(f"\x1b[2K{step:3d}% |{'#' * (step // 5)}" for step in range(0, 101, 5))
    text = f"\x1b[1mFetching\x1b[0m model\r\n{bar}\r\n\x1b]0;title\x07done in \x1b[32m3s\x1b[0m\r\n"
    result = compress(text)
    assert result.content_type == "terminal"
    legend, *lines = result.text.split("\n")
    assert legend.startswith("[… terminal: escapes and 20 overwritten lines · ")
    assert [line for line in lines if line] == ["Fetching model", f"100% |{'#' * 20}", "done in 3s"]


def test_lines_that_the_cursor_goes_back_to_erase_are_overwritten() -> None:
    steps = "\x1b[1A\x1b[2K".join(f"progress {step} of the long job\n" for step in range(30))
    text = f"start\n{steps}end\n"
    lines = compress(text).text.split("\n")
    assert "progress 29 of the long job" in lines
    assert "progress 12 of the long job" not in lines
    assert "start" in lines


def test_lines_that_the_cursor_only_passes_stay() -> None:
    steps = "".join(
        f"\x1b[{4 - layer}A\x1b[2K\rlayer{layer}: {step}% of it is here\x1b[{4 - layer}B\r"
        for step in range(0, 101, 10)
        for layer in range(4)
    )
    text = "".join(f"layer{layer}: waiting\n" for layer in range(4)) + steps + "\nall of it is here\n"
    first, *lines = compress(text).text.split("\n")
    assert first.startswith("[… terminal: escapes and 44 overwritten lines · ")
    assert [line for line in lines if line] == [
        *(f"layer{n}: 100% of it is here" for n in range(4)),
        "all of it is here",
    ]


def test_what_is_erased_below_the_cursor_is_gone() -> None:
    bars = "\n".join(f"part {number} is being fetched" for number in range(20))
    text = f"start\n\x1b[36mwait\x1b[0m\n{bars}\x1b[19F\x1b[Jfetched\nend\n"
    assert [line for line in compress(text).text.split("\n")[1:] if line] == ["start", "wait", "fetched", "end"]


@pytest.mark.parametrize("end", ["\r", "\r\r\n"])
def test_lines_that_end_in_carriage_returns_are_no_redrawn_line(end: str) -> None:
    names = ("Ada", "Bruno", "Carla", "Dimitri", "Eve", "Farid")
    text = end.join(f"{name} has something of her own to say about the plan." for name in names)
    result = compress(text)
    assert result.content_type == "prose"
    assert result.text is text


def test_markers_name_lines_of_the_original() -> None:
    passes = "".join(f"\x1b[2Kcase_{number} \x1b[32mPASSED\x1b[0m\n" for number in range(40))
    text = "gone\n\x1b[1A\x1b[2K\x1b[1mrun\x1b[0m\n" + passes + "\x1b[31m1 failed\x1b[0m\n"
    assert "[… L3-42 · 40 passed · " in compress(text).text


def test_markers_name_the_lines_that_drew_what_is_left_out() -> None:
    rows = "waiting\n" * 60
    drawn = "".join(f"\x1b[2Kcase_{number} \x1b[32mPASSED\x1b[0m\n" for number in range(40))
    assert "[… L61-100 · 40 passed · " in compress(f"{rows}\x1b[60A\x1b[J{drawn}1 failed\n").text


def test_a_coloured_diff_is_shortened_as_a_diff() -> None:
    context = "".join(f" context {number}\n" for number in range(20))
    text = (
        "\x1b[1mdiff --git a/x b/x\x1b[m\n\x1b[1mindex 1..2 100644\x1b[m\n\x1b[1m--- a/x\x1b[m\n\x1b[1m+++ b/x\x1b[m\n"
        f"\x1b[36m@@ -1,21 +1,21 @@\x1b[m\n{context}\x1b[31m-a\x1b[m\n\x1b[32m+b\x1b[m\n"
    )
    shown = compress(text).text
    assert "\n-a\n+b" in shown
    assert "context 19" in shown
    assert "context 3\n" not in shown


def test_a_query_that_only_an_overwritten_line_answers_is_shown_the_text_as_it_is() -> None:
    text = "".join(f"\x1b[2Kfetching part{number}\r" for number in range(40)) + "\x1b[2Kfetched\n"
    assert compress(text, query_terms=("fetched",)).method != "none"
    assert compress(text, query_terms=("part7",)).text is text
