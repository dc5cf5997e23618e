"""Generated inputs of every type, and ways to spoil them."""

import json
import random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.bench.engine_texts import MAKERS, long_texts

checked = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
BASE = {text.name: text.text for text in long_texts()}

any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
WORDS = ["token", "Error", "cache", "7", "12.5", "2026-01-02", "naïve", "表示", "ไทย", "😀", "id=9", "a,b", "x\ty"]
words = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)
marks = st.sampled_from(["", "---", "```", "# Heading", "- item"])
lines = st.lists(words | any_text | marks, max_size=40).map("\n".join)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=6), inner, max_size=5),
    max_leaves=30,
)
record_lists = st.lists(
    st.dictionaries(st.sampled_from(["id", "name", "a b", "x.y", "", "~", "n"]), json_values, min_size=1, max_size=5),
    min_size=3,
    max_size=12,
)


def documents() -> SearchStrategy[str]:
    """Return texts of JSON documents, indented or not."""
    values = json_values | record_lists | record_lists.map(lambda rows: {"data": rows, "total": len(rows)})
    return st.builds(_document, values, st.sampled_from([None, 1, 2, "\t"]))


def _document(value: object, indent: int | str | None) -> str:
    return json.dumps(value, indent=indent)


def parts(*kinds: str) -> SearchStrategy[str]:
    """Return parts of long texts of some types, or of every type, cut at lines or anywhere."""
    names = [name for name, kind, _ in MAKERS if not kinds or kind in kinds]
    return st.builds(_part, st.sampled_from(names), st.integers(0, 2**31), st.booleans())


def _part(name: str, seed: int, whole: bool) -> str:  # noqa: FBT001 - drawn
    text = BASE[name]
    random_ = random.Random(seed)
    start = 0 if whole else random_.randrange(len(text))
    return text[start : start + random_.randrange(20, 6000)]


def spoilt() -> SearchStrategy[str]:
    """Return texts that were truncated, interleaved, repeated, or given other line ends."""
    return st.builds(_spoilt, parts() | documents() | lines, parts() | lines, st.integers(0, 2**31))


def _spoilt(text: str, other: str, seed: int) -> str:
    random_ = random.Random(seed)
    for _ in range(random_.randrange(3)):
        match random_.randrange(7):
            case 0:
                text = text[: random_.randrange(len(text) + 1)]
            case 1:
                ours, theirs = text.split("\n"), other.split("\n")
                text = "\n".join(line for pair in zip(ours, theirs, strict=False) for line in pair)
            case 2:
                text = text.replace("\n", "\r\n")
            case 3:
                text = "".join(line + random_.choice(["\n", "\r\n", "\r"]) for line in text.split("\n"))
            case 4:
                text = text + "\n" + text
            case 5:
                at = random_.randrange(len(text) + 1)
                text = (
                    text[:at]
                    + random_.choice(["\x1b[31m", '"', "{", "\0", "\t", "[… L1 · 2 tok]", "\n\n\n\n", "<"])
                    + text[at:]
                )
            case _:
                text = text.replace(" ", "") if random_.random() < 0.3 else text + other
    return text[:60_000]


def texts() -> SearchStrategy[str]:
    """Return inputs of every kind."""
    return parts() | documents() | lines | any_text | spoilt()
