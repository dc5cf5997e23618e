"""What fits a token budget."""

from hypothesis import given
from hypothesis import strategies as st

from cavemem_mcp import tokens
from cavemem_mcp.packing import SHORTENED_BYTES_MAX, Packed, Ranked, Shortened, pack


def whole(text: str, token_budget: int | None = None, /) -> Shortened:
    return Shortened(text, tokens.count(text), tokens.count(text), "text", "none")


def halved(text: str, token_budget: int | None = None, /) -> Shortened:
    """Drop every other word; with a budget, keep what fits of the start."""
    short = " ".join(text.split(" ")[::2]) if token_budget is None else tokens.head(text, token_budget)
    return Shortened(short, tokens.count(short), tokens.count(text), "text", "halved")


def packed(
    memories: list[Ranked], token_budget: int | None, *, can_keep: bool = True
) -> tuple[tuple[Packed, ...], list[tuple[str, str]]]:
    """Pack with the shortening above; return also what was kept, as (id, text it was shortened to)."""
    kept: list[tuple[str, str]] = []

    def keep(memory: Ranked, shortened: Shortened) -> bool:
        kept.append((memory.id, shortened.text))
        return can_keep

    return pack(memories, token_budget, shorten=halved, whole=whole, keep=keep), kept


ONE, TWO, THREE = (Ranked(f"mem_{n}", 1.0 / n, "word more " * (10 * n)) for n in (1, 2, 3))
COST = {memory.id: halved(memory.text).tokens for memory in (ONE, TWO, THREE)}


def test_without_a_cap_everything_comes_back_shortened_and_kept() -> None:
    packing, kept = packed([THREE, TWO, ONE], None)
    assert [(entry.ranked, entry.shortened) for entry in packing] == [
        (memory, halved(memory.text)) for memory in (THREE, TWO, ONE)
    ]
    assert not any(entry.is_whole for entry in packing)
    assert [id for id, _ in kept] == ["mem_3", "mem_2", "mem_1"]


def test_a_text_that_nothing_shortens_is_whole_and_needs_no_keeping() -> None:
    packing, kept = packed([Ranked("mem_x", 1.0, "word")], 10)
    assert [entry.is_whole for entry in packing] == [True]
    assert kept == []


def test_a_memory_that_does_not_fit_is_left_out_and_a_later_one_still_taken() -> None:
    packing, kept = packed([TWO, THREE, ONE], COST["mem_2"] + COST["mem_1"])
    assert [entry.ranked for entry in packing] == [TWO, ONE]
    assert [id for id, _ in kept] == ["mem_2", "mem_1"]


def test_an_oversized_first_memory_comes_back_alone_cut_to_fit() -> None:
    packing, kept = packed([THREE, ONE, TWO], 15)
    (cut,) = packing
    assert cut.ranked == THREE
    assert cut.shortened == halved(THREE.text, 15)
    assert not cut.is_whole
    assert kept == [("mem_3", cut.shortened.text)]


def test_a_memory_whose_original_cannot_be_kept_is_taken_whole_if_it_fits() -> None:
    packing, _ = packed([TWO, ONE], whole(TWO.text).tokens + COST["mem_1"], can_keep=False)
    assert [(entry.ranked, entry.is_whole) for entry in packing] == [(TWO, True)]


def test_a_first_memory_whose_original_cannot_be_kept_still_fits_the_budget() -> None:
    packing, _ = packed([THREE], COST["mem_3"], can_keep=False)
    assert [entry.shortened for entry in packing] == [halved(THREE.text, COST["mem_3"])]


def test_a_cut_memory_that_nothing_would_recover_is_left_out() -> None:
    foreign = THREE._replace(is_recoverable=False)
    packing, _ = packed([foreign, ONE], COST["mem_1"], can_keep=False)
    assert [entry.ranked for entry in packing] == []
    packing, _ = packed([foreign, ONE], whole(ONE.text).tokens, can_keep=False)
    assert [(entry.ranked, entry.is_whole) for entry in packing] == [(ONE, True)]


def test_one_recall_shortens_a_bounded_amount_of_text() -> None:
    long = Ranked("mem_long", 1.0, "word more " * (SHORTENED_BYTES_MAX // 20))
    shortened: list[str] = []

    def noting(text: str, token_budget: int | None = None, /) -> Shortened:
        shortened.append(text)
        return halved(text, token_budget)

    packing = pack([long] * 5, None, shorten=noting, whole=whole, keep=lambda _memory, _shortened: True)
    assert len(shortened) == 2
    assert [entry.is_whole for entry in packing] == [False, False, True, True, True]


def test_the_smallest_budget_still_names_the_memory() -> None:
    packing, _ = packed([Ranked("mem_x", 1.0, "🧠🧠")], 1)
    assert [(entry.shortened.text, entry.shortened.tokens) for entry in packing] == [("", 0)]


def test_nothing_is_shortened_once_there_is_no_room() -> None:
    shortened: list[str] = []

    def noting(text: str, token_budget: int | None = None, /) -> Shortened:
        shortened.append(text)
        return halved(text, token_budget)

    pack([ONE, *[TWO] * 99], COST["mem_1"], shorten=noting, whole=whole, keep=lambda _memory, _shortened: True)
    assert shortened == [ONE.text]


@given(
    texts=st.lists(st.text(st.sampled_from("ab 🧠\n"), min_size=1), max_size=8),
    budget=st.none() | st.integers(1, 40),
    can_keep=st.booleans(),
)
def test_a_result_never_exceeds_the_budget_and_keeps_the_order(
    texts: list[str], budget: int | None, *, can_keep: bool
) -> None:
    memories = [Ranked(f"mem_{number}", 1.0, text) for number, text in enumerate(texts)]
    packing, _ = packed(memories, budget, can_keep=can_keep)
    assert budget is None or sum(entry.shortened.tokens for entry in packing) <= budget
    assert all(entry.shortened.tokens == tokens.count(entry.shortened.text) for entry in packing)
    assert [entry.ranked.id for entry in packing] == sorted(entry.ranked.id for entry in packing)


@given(st.lists(st.text(st.sampled_from("ab 🧠"), min_size=1), max_size=8), st.integers(1, 40))
def test_packing_lazily_gives_what_shortening_everything_first_gives(texts: list[str], budget: int) -> None:
    memories = [Ranked(f"mem_{number}", 1.0, text) for number, text in enumerate(texts)]
    forms = [halved(memory.text) for memory in memories]
    left, expected = budget, list[tuple[str, str]]()
    if memories and forms[0].tokens > budget:
        expected = [(memories[0].id, halved(memories[0].text, budget).text)]
    else:
        for memory, form in zip(memories, forms, strict=True):
            if form.tokens <= left:
                expected.append((memory.id, form.text))
                left -= form.tokens
    packing, _ = packed(memories, budget)
    # Without any token a form fits even where nothing is left; recalled texts always have some.
    found = [(entry.ranked.id, entry.shortened.text) for entry in packing]
    assert found == [entry for entry in expected if entry[1] or entry in found]
