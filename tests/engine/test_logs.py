"""System logs: templates once, then the values; the focus shows lines as they are."""

from cavemem_mcp.engine import compress

LINES = [
    f"2026-03-01T10:{number // 60:02d}:{number % 60:02d}Z INFO  [worker-7] "
    f"finished job {number * 7919 % 10007} in {number}ms"
    for number in range(200)
]


def test_lines_that_differ_in_values_become_a_template_and_rows() -> None:
    result = compress("\n".join(LINES))
    assert result.method == "templates"
    assert result.lossless
    assert result.tokens_after < result.tokens_before * 0.5
    _, template, blank, first = result.text.split("\n")[:4]
    assert template == "2026-03-01T*Z INFO  [worker-7] finished job * in *ms"
    assert blank == ""
    assert first == "1 10:00:00 0 0"


def test_a_word_that_changes_is_a_value_too() -> None:
    names = ["ada", "bruno", "carla", "dimitri"]
    lines = [
        f"10:00:{number % 60:02d} INFO session of {names[number % 4]} opened from port {number + 900}"
        for number in range(80)
    ]
    assert "* INFO session of * opened from port *" in compress("\n".join(lines)).text


def test_rare_lines_stay_whole_and_runs_of_equal_lines_are_counted() -> None:
    lines = [*LINES, "2026-03-01T11:00:00Z FATAL the disk is gone", *["INFO tick"] * 50]
    text = compress("\n".join(lines)).text
    assert "\n2026-03-01T11:00:00Z FATAL the disk is gone\n" in text
    assert " ×50" in text


def test_the_focus_keeps_an_entry_with_its_continuation_lines() -> None:
    entry = [
        "2026-03-01T10:02:00Z ERROR job 4711 failed",
        "\tat com.example.Run(Run.java:7)",
        "\tat com.example.Main(Main.java:3)",
    ]
    text = "\n".join([*LINES[:150], *entry, *LINES[150:]])
    assert "\n".join(entry) in compress(text, query_terms=("4711",), token_budget=300).text
