"""The benchmark's set is what it claims to be, and the engine keeps its aims on one text of each kind."""

from cavemem_mcp.engine import compress
from cavemem_mcp.model import MEMORY_BYTES_MAX
from cavemem_mcp.terms import query_terms
from tests.bench import bench_engine
from tests.bench.engine_texts import long_texts, small_set


def test_the_set_has_enough_texts_and_questions_of_every_kind() -> None:
    texts = long_texts()
    assert len(texts) >= 30
    assert sum(len(text.questions) for text in texts) >= 120
    assert len({text.kind for text in texts}) == 10
    assert all(query_terms(question.query) for text in texts for question in text.questions)


def test_answers_are_in_the_texts_behind_the_head() -> None:
    for text in long_texts():
        for question in text.questions:
            assert bench_engine.holds(text.text, question)
            assert not bench_engine.holds(text.text[: len(text.text) // 4], question)


def test_a_small_run_keeps_the_answers_and_prints_its_table() -> None:
    measured = bench_engine.measure(small_set())
    total = measured["all"]
    assert total.dearer == 0
    assert total.kept["2000"] >= 0.9 * total.questions
    assert total.kept["head 2000"] < total.kept["2000"]
    assert len(bench_engine.table(measured).split("\n")) == len(measured) + 2


def test_the_cost_of_the_largest_memory_is_measured_for_every_kind() -> None:
    for text in small_set():
        assert 0.7 * MEMORY_BYTES_MAX < len(bench_engine.grown(text).encode()) <= MEMORY_BYTES_MAX
        assert compress(bench_engine.grown(text)).content_type == text.kind
    spent = bench_engine.largest(small_set())
    assert set(spent) == {text.kind for text in small_set()}
    assert all(form > 0 < cut for form, cut in spent.values())
