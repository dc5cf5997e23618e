"""Ids, times and the checks of arguments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cavemem_mcp import model
from cavemem_mcp.errors import InvalidArgumentsError, MemoryTooLargeError


def test_ids_and_handles_are_prefixes_of_the_sha_256() -> None:
    assert model.memory_id("fox") == "mem_776cb326ab0cd5f0"
    assert model.recovery_handle("fox") == "ccr_776cb326ab0cd5f0a974c1b9606044d8"
    assert model.memory_id_of_handle(model.recovery_handle("fox")) == model.memory_id("fox")


def test_times_are_rfc_3339_with_nanoseconds() -> None:
    assert model.timestamp(1_769_846_400_000_000_001) == "2026-01-31T08:00:00.000000001Z"
    assert model.timestamp(0) == "1970-01-01T00:00:00.000000000Z"


@pytest.mark.parametrize("value", [5, 5.0, "5"], ids=["integer", "float", "string"])
def test_an_integer_is_taken_in_each_form_that_clients_send(value: object) -> None:
    assert model.checked_integer("limit", value) == 5


@pytest.mark.parametrize(
    "value",
    [True, False, 1.5, "", "x", "1.0", "٣", "5 ", -1, "-1", float("inf"), float("nan"), [], {}, 10**30, "9" * 5000],
    ids=lambda value: repr(value)[:40],
)
def test_any_other_integer_is_refused_without_being_repeated(value: object) -> None:
    with pytest.raises(InvalidArgumentsError) as refused:
        model.checked_integer("token_budget", value)
    assert refused.value.message.startswith("token_budget: must be ")
    assert len(refused.value.message) < 100


def test_an_integer_above_its_maximum_is_refused() -> None:
    assert model.checked_integer("n", 7, maximum=7) == 7
    with pytest.raises(InvalidArgumentsError, match="at most 7"):
        model.checked_integer("n", 8, maximum=7)


def test_only_the_edges_know_the_zero_sentinel() -> None:
    assert model.budget_from_wire(0) is None
    assert model.budget_from_wire(7) == 7
    assert model.limit_from_wire(0) == 5
    assert model.limit_from_wire(1_000_000) == 1000
    assert model.limit_from_wire(3) == 3


@pytest.mark.parametrize("value", ["", " \n\t", None, 5, ["x"], "half \ud83d", "\udc00"])
def test_a_text_that_cannot_be_stored_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgumentsError, match="text: "):
        model.checked_text("text", value)


@given(st.text(min_size=1).filter(lambda text: not text.isspace()))
def test_any_other_text_passes_unchanged(text: str) -> None:
    assert model.checked_text("text", text) == text


@pytest.mark.parametrize("character", ["x", "é", "語", "🧠"])
def test_the_size_limit_counts_bytes_not_characters(character: str) -> None:
    size = len(character.encode())
    fits = character * (model.MEMORY_BYTES_MAX // size)
    assert model.checked_text("text", fits) == fits
    with pytest.raises(MemoryTooLargeError, match="262144"):
        model.checked_text("text", fits + character)
