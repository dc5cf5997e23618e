"""Long texts of every type, made by seeded scripts, with questions whose answers lie away from the head."""

import random
from collections.abc import Callable
from typing import NamedTuple

from tests.bench import engine_data_texts, engine_work_texts
from tests.bench.engine_words import Question


class LongText(NamedTuple):
    """A long text with its questions."""

    name: str
    kind: str
    text: str
    questions: tuple[Question, ...]


Maker = Callable[[random.Random], tuple[str, list[Question]]]
QUESTIONS_EACH = 5
HEAD_SHARE = 0.3
"""No answer is in this part of the text."""


def long_texts() -> list[LongText]:
    """Return the whole set, the same at each call."""
    return [_made(name, kind, maker) for name, kind, maker in MAKERS]


def small_set() -> list[LongText]:
    """Return one text of each kind, for a quick run."""
    first: dict[str, LongText] = {}
    for name, kind, maker in MAKERS:
        if kind not in first:
            first[kind] = _made(name, kind, maker)
    return list(first.values())


def _made(name: str, kind: str, maker: Maker) -> LongText:
    random_ = random.Random(name)
    text, questions = maker(random_)
    head = text[: int(len(text) * HEAD_SHARE)]
    late = [question for question in questions if not all(part in head for part in question.answer)]
    chosen = random_.sample(late, min(QUESTIONS_EACH, len(late)))
    assert len(chosen) >= 4, name
    return LongText(name, kind, text, tuple(chosen))


_TWICE: list[tuple[str, str, Maker]] = [
    ("users", "json records", engine_data_texts.users_json),
    ("orders", "json records", engine_data_texts.orders_json),
    ("events", "json records", engine_data_texts.events_json_lines),
    ("cluster", "json", engine_data_texts.cluster_json),
    ("messages", "json", engine_data_texts.translations_json),
    ("sales", "csv", engine_data_texts.sales_csv),
    ("sensors", "csv", engine_data_texts.sensors_tsv),
    ("application", "log", engine_data_texts.application_log),
    ("access", "log", engine_data_texts.access_log),
    ("system", "log", engine_data_texts.system_log),
    ("pytest", "test log", engine_work_texts.pytest_log),
    ("cargo", "test log", engine_work_texts.cargo_log),
    ("pip", "terminal", engine_work_texts.pip_terminal),
    ("listing", "terminal", engine_work_texts.shell_terminal),
    ("changes", "diff", engine_work_texts.source_diff),
    ("python", "code", engine_work_texts.python_source),
    ("javascript", "code", engine_work_texts.javascript_source),
    ("go", "code", engine_work_texts.go_source),
    ("handbook", "html", engine_work_texts.html_page),
    ("notes", "prose", engine_work_texts.notes_markdown),
    ("call", "prose", engine_work_texts.transcript),
    ("paragraph", "prose", engine_work_texts.long_paragraph),
]
MAKERS = [(f"{name} {number}", kind, maker) for number in (1, 2) for name, kind, maker in _TWICE]
