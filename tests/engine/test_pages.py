"""HTML pages become their text."""

import pytest

from cavemem_mcp.engine import compress

PAGE = (
    "<!doctype html><html><head><title>Guide</title><style>p{color:red}</style>"
    "<script>var a = 1 < 2;</script></head><body>"
    "<nav><a href='/'>Home</a> <a href='/about'>About us</a></nav><h2 class='x'>Set&nbsp;up</h2>"
    "<p class='lead'>Read <a href='https://docs.example/start'>the docs</a> &amp; <b>then</b> start.</p>"
    "<ul><li>one</li><li>two</li></ul><table><tr><th>Name</th><th>Room</th></tr><tr><td>Ada</td><td>B7</td></tr></table>"
    "<pre>a\n  b</pre><form><input name=q><label>Search</label></form><footer>Imprint</footer></body></html>"
)


def test_headings_lists_tables_links_and_preformatted_text_stay_and_the_rest_goes() -> None:
    result = compress(PAGE)
    assert result.content_type == "html"
    first, *lines = result.text.split("\n")
    assert first.startswith("[… HTML as text: ")
    assert lines == [
        "# Guide",
        "## Set up",
        "Read [the docs](https://docs.example/start) & then start.",
        "- one",
        "- two",
        "Name | Room",
        "Ada | B7",
        "a",
        "  b",
    ]


def test_a_page_that_is_one_form_keeps_its_text() -> None:
    text = f"<html><body><form>{'<p class=c>A paragraph of the page.</p>' * 9}</form></body></html>"
    assert compress(text).text.count("A paragraph of the page.") == 9


def test_a_page_whose_end_is_hidden_is_left_as_it_is() -> None:
    for broken in ("<html><p>a</p><nav><p>b</p>", "<html><p>a</p><!-- b", "<html><p>a</p><script>b"):
        text = broken + " and a little more text" * 20
        assert compress(text).text is text


@pytest.mark.parametrize("word", ["about", "imprint", "search", "guide"])
def test_what_is_around_the_text_is_shown_where_the_query_finds_nothing_else(word: str) -> None:
    result = compress(PAGE, query_terms=(word,))
    assert result.method == "html"
    assert word in result.text.lower()
    assert ("About us" in result.text) == (word != "guide")
    assert ("navigation" in result.text.split("\n")[0]) == (word == "guide")


def test_a_word_that_only_a_script_holds_is_shown_in_the_page_as_it_is() -> None:
    page = PAGE.replace("var a", "var retries")
    assert compress(page, query_terms=("retries",)).text is page
    assert "retries" in compress(page, query_terms=("retries",), token_budget=80).text


def test_a_word_that_only_the_navigation_holds_is_found_within_a_budget() -> None:
    text = PAGE.replace("<p class", "<p>" + "Nothing to see here at all. " * 300 + "</p><p class")
    assert "About us" in compress(text, query_terms=("about",), token_budget=150).text
