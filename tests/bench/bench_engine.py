"""Measure the compression engine on long texts: cost, time, and how many answers stay, beside a plain head cut.

Run `python -m tests.bench.bench_engine`.

An answer stays when each of its strings is literally in the returned text. Without a budget, a
lossless form counts as its text: the tests read it back.
"""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from cavemem_mcp import tokens
from cavemem_mcp.engine import Compressible, compress
from cavemem_mcp.model import MEMORY_BYTES_MAX
from cavemem_mcp.terms import query_terms
from tests.bench.engine_texts import LongText, long_texts
from tests.bench.engine_words import Question

BUDGETS = (2000, 800)


@dataclass
class Figures:
    """What was measured of the texts of one kind."""

    texts: int = 0
    questions: int = 0
    before: int = 0
    after: int = 0
    milliseconds: float = 0.0
    kept: dict[str, int] = field(default_factory=dict[str, int])
    dearer: int = 0

    def add(self, other: "Figures") -> None:
        """Add another kind's figures."""
        self.texts += other.texts
        self.questions += other.questions
        self.before += other.before
        self.after += other.after
        self.milliseconds += other.milliseconds
        self.dearer += other.dearer
        for name, count in other.kept.items():
            self.kept[name] = self.kept.get(name, 0) + count


def holds(text: str, question: Question) -> bool:
    """Tell whether a text answers a question."""
    return all(part in text for part in question.answer)


def measure(texts: Iterable[LongText]) -> dict[str, Figures]:
    """Return the figures by kind, and for all texts together."""
    kinds: dict[str, Figures] = {}
    total = Figures()
    for long_text in texts:
        figures = _measured(long_text)
        kinds.setdefault(long_text.kind, Figures()).add(figures)
        total.add(figures)
    return {**kinds, "all": total}


def _measured(long_text: LongText) -> Figures:
    figures = Figures(texts=1, questions=len(long_text.questions))
    for question in long_text.questions:
        terms = query_terms(question.query)
        started = time.perf_counter()
        structural = compress(long_text.text, query_terms=terms)
        figures.milliseconds += (time.perf_counter() - started) * 1000
        figures.before += structural.tokens_before
        figures.after += structural.tokens_after
        figures.dearer += structural.tokens_after > structural.tokens_before
        _count(figures, "whole", long_text.text if structural.lossless else structural.text, question)
        for budget in BUDGETS:
            text = compress(long_text.text, query_terms=terms, token_budget=budget).text
            figures.dearer += tokens.count(text) > budget
            _count(figures, f"{budget}", text, question)
            _count(figures, f"head {budget}", tokens.head(long_text.text, budget), question)
    return figures


def _count(figures: Figures, name: str, text: str, question: Question) -> None:
    figures.kept[name] = figures.kept.get(name, 0) + holds(text, question)


def table(measured: dict[str, Figures]) -> str:
    """Write the figures as a Markdown table."""
    columns = ["whole", *(name for budget in BUDGETS for name in (f"{budget}", f"head {budget}"))]
    lines = [
        "| type | texts | questions | tokens before | after | ratio | ms | kept, no budget | "
        + " | ".join(f"kept at {budget} | head at {budget}" for budget in BUDGETS)
        + " |",
        "|---" * (8 + 2 * len(BUDGETS)) + "|",
    ]
    for kind, figures in measured.items():
        cells: Sequence[object] = (
            kind,
            figures.texts,
            figures.questions,
            figures.before // figures.questions,
            figures.after // figures.questions,
            f"{figures.after / figures.before:.2f}",
            f"{figures.milliseconds / figures.questions:.0f}",
            *(f"{figures.kept[name] / figures.questions:.2f}" for name in columns),
        )
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines)


def largest(texts: Iterable[LongText]) -> dict[str, tuple[float, float]]:
    """Return, by kind, the milliseconds that recall spends on the largest memory at first sight.

    First for its form without a budget, then for the cut that follows when it exceeds the default budget.
    """
    spent: dict[str, tuple[float, float]] = {}
    for long_text in texts:
        if long_text.kind not in spent:
            text, terms = grown(long_text), query_terms(long_text.questions[0].query)
            started = time.perf_counter()
            compressible = Compressible(text, terms)
            compressible.compressed()
            formed = time.perf_counter()
            compressible.compressed(BUDGETS[0])
            spent[long_text.kind] = ((formed - started) * 1000, (time.perf_counter() - formed) * 1000)
    return spent


def grown(long_text: LongText) -> str:
    """Return a text of the same kind that fills one memory, made of copies."""
    if long_text.kind not in ("json", "json records"):
        return "\n".join([long_text.text] * (MEMORY_BYTES_MAX // (len(long_text.text.encode()) + 1)))
    value: dict[str, object] | list[object] = json.loads(long_text.text)
    copies = MEMORY_BYTES_MAX // (len(json.dumps(value)) + len('"100": , '))
    many = value * copies if isinstance(value, list) else {str(copy): value for copy in range(copies)}
    return json.dumps(many)


def main(show: Callable[[str], None] = print) -> None:
    """Print the table of the whole set, and what the largest memories cost."""
    tokens.count("the vocabulary loads once, in the server before the first call")
    texts = long_texts()
    costs = largest(texts)
    show(table(measure(texts)))
    show("\nThe largest memory of each type at first sight, ms: its form, then its cut to 2000 tokens")
    for kind, (form, cut) in costs.items():
        show(f"{kind}: {form:.0f} + {cut:.0f}")


if __name__ == "__main__":
    main()
