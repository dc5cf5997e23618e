"""What fits a token budget."""

from hypothesis import given
from hypothesis import strategies as st

from cavemem_mcp import tokens
from cavemem_mcp.packing import Ranked, pack

ONE, TWO, THREE = (Ranked(f"mem_{n}", 1.0 / n, "word " * (10 * n)) for n in (1, 2, 3))


def test_without_a_cap_everything_comes_back_whole() -> None:
    packing = pack([THREE, TWO, ONE], None)
    assert [(entry.ranked, entry.text, entry.is_whole) for entry in packing.packed] == [
        (memory, memory.text, True) for memory in (THREE, TWO, ONE)
    ]
    assert packing.omitted == 0


def test_a_memory_that_does_not_fit_is_left_out_and_a_later_one_still_taken() -> None:
    packing = pack([TWO, THREE, ONE], tokens.count(TWO.text) + tokens.count(ONE.text))
    assert [entry.ranked for entry in packing.packed] == [TWO, ONE]
    assert packing.omitted == 1


def test_an_oversized_first_memory_comes_back_alone_as_a_head() -> None:
    packing = pack([THREE, ONE, TWO], 15)
    (head,) = packing.packed
    assert head.ranked == THREE
    assert not head.is_whole
    assert THREE.text.startswith(head.text)
    assert head.tokens == tokens.count(head.text) <= 15
    assert packing.omitted == 2


def test_the_smallest_budget_still_names_the_memory() -> None:
    packing = pack([Ranked("mem_x", 1.0, "🧠🧠")], 1)
    assert [(entry.text, entry.tokens, entry.is_whole) for entry in packing.packed] == [("", 0, False)]


@given(st.lists(st.text(st.sampled_from("ab 🧠\n"), min_size=1), max_size=8), st.integers(1, 40))
def test_a_result_never_exceeds_the_budget_and_accounts_for_every_memory(texts: list[str], budget: int) -> None:
    ranked = [Ranked(f"mem_{number}", 1.0, text) for number, text in enumerate(texts)]
    packing = pack(ranked, budget)
    assert sum(entry.tokens for entry in packing.packed) <= budget
    assert all(entry.tokens == tokens.count(entry.text) for entry in packing.packed)
    assert len(packing.packed) + packing.omitted == len(ranked)
    assert [entry.ranked.id for entry in packing.packed] == sorted(entry.ranked.id for entry in packing.packed)
