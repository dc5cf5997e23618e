"""Files of memories: what is read from each format, and what is skipped and why. Pure."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cavemem_mcp.formats import Chain, Skipped, as_line, read
from cavemem_mcp.model import MEMORY_BYTES_MAX, Memory, memory_id

NOW_NS = 1_800_000_000_000_000_000
NOW = "2027-01-15T08:00:00.00000000"
EARLIER = "2026-01-01T00:00:00Z"


def _read(content: str | bytes) -> list[Chain | Skipped]:
    return list(read(io.BytesIO(content.encode() if isinstance(content, str) else content), NOW_NS))


def _texts(content: str) -> list[str]:
    texts: list[str] = []
    for found in _read(content):
        assert isinstance(found, Chain), found
        texts += [memory.text for memory in found.memories]
    return texts


def _skipped(content: str | bytes) -> list[Skipped]:
    return [found for found in _read(content) if isinstance(found, Skipped)]


def _chain(*texts: str) -> tuple[Memory, ...]:
    ids = [memory_id(text) for text in texts]
    return tuple(
        Memory(
            id=id,
            text=text,
            created_at=EARLIER,
            valid_from=EARLIER,
            valid_until=EARLIER if later else None,
            supersedes=earlier,
            superseded_by=later,
        )
        for id, text, earlier, later in zip(ids, texts, [None, *ids], [*ids[1:], None], strict=False)
    )


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda text: not text.isspace())


@given(st.lists(st.lists(texts, min_size=1, unique=True), min_size=1))
def test_what_is_exported_is_read_back_exactly(chains: list[list[str]]) -> None:
    written = [_chain(*versions) for versions in chains]
    found = _read(b"".join(as_line(chain) for chain in written))
    assert found == [Chain(number, chain) for number, chain in enumerate(written, start=1)]


def test_an_exported_chain_is_one_line_with_its_whole_history() -> None:
    chain = _chain("first\n", "second\u2028")
    line = as_line(chain)
    assert line.count(b"\n") == 1
    assert json.loads(line) == {"history": [memory.as_json() for memory in chain]}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"id": "mem_0000000000000000"}, "an id is not that of its text"),
        ({"created_at": "yesterday"}, "a time is not RFC 3339"),
        ({"valid_until": "2026-01-01T00:00:00+01:00"}, "a time is not RFC 3339"),
        ({"importance": "high"}, "unknown or no string"),
        ({"text": 1}, "unknown or no string"),
        ({"text": None}, "lacks id, text"),
        ({"text": " ", "id": memory_id(" ")}, "must not be blank"),
        ({"text": "\ud800"}, "half of a surrogate pair"),
        ({"superseded_by": "mem_1"}, "do not form a chain"),
    ],
    ids=str,
)
def test_a_version_that_is_not_right_skips_its_chain(change: dict[str, object], reason: str) -> None:
    history = json.loads(as_line(_chain("first", "second")))
    history["history"][1].update(change)
    skipped, kept = _read(json.dumps(history) + "\n" + as_line(_chain("another")).decode())
    assert isinstance(skipped, Skipped)
    assert skipped.line == 1
    assert reason in skipped.reason
    assert kept == Chain(2, _chain("another"))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"history": []}', "the history is empty"),
        ('{"history": ["text"]}', "a version is no object"),
        ('{"history": [', "is not JSON; the file may be cut off"),
        ('{"text": "a"}', "neither a history nor"),
        ("[" * 100_000, "is not JSON"),
        ('{"type": "entity", "name": "Dana"}', "neither a history nor"),
        ('{"type": "entity", "name": "Dana", "entityType": "person", "observations": [1]}', "is no string"),
    ],
)
def test_a_line_that_is_no_chain_is_skipped_and_the_rest_is_read(line: str, reason: str) -> None:
    first = as_line(_chain("a fact")).decode()
    kept, skipped = _read(f"{first}\n{line}\n")
    assert kept == Chain(1, _chain("a fact"))
    assert isinstance(skipped, Skipped)
    assert skipped.line == 3
    assert reason in skipped.reason


def test_a_current_version_that_is_superseded_is_no_chain() -> None:
    history = json.loads(as_line(_chain("first", "second")))
    del history["history"][0]["valid_until"]
    assert _skipped(json.dumps(history)) == [Skipped(1, "a superseded version has no valid_until")]


def test_versions_out_of_order_or_twice_are_no_chain() -> None:
    first, second = json.loads(as_line(_chain("first", "second")))["history"]
    for versions in ([second, first], [first, first], [second]):
        (skipped,) = _skipped(json.dumps({"history": versions}))
        assert "do not form a chain" in skipped.reason


def test_the_official_servers_file_gives_a_memory_for_each_observation_and_relation() -> None:
    content = """\
{"type":"entity","name":"Dana","entityType":"person","observations":["Reviews before ten","Prefers tea"]}
{"type":"entity","name":"billing","entityType":"","observations":[]}

{"type":"relation","from":"Dana","to":"billing","relationType":"maintains"}
"""
    assert _texts(content) == [
        "Dana (person): Reviews before ten",
        "Dana (person): Prefers tea",
        "billing",
        "Dana maintains billing",
    ]


def test_plain_text_gives_a_memory_for_each_paragraph() -> None:
    assert _texts("first\nof two lines\r\n\n \nsecond\n") == ["first\nof two lines", "second"]


def test_markdown_gives_a_memory_for_each_bullet_and_no_headings_or_rules() -> None:
    content = """\
# Webshop

Deploys on Tuesday.
---
## Team
- Dana *leads*
  and reviews
* [ ] Zoë writes
  1. in Go
- - -
+ plus
2) second
Not-a bullet
#5 is no heading
"""
    assert _texts(content) == [
        "Deploys on Tuesday.",
        "Dana *leads*\nand reviews",
        "[ ] Zoë writes",
        "in Go",
        "plus",
        "second\nNot-a bullet\n#5 is no heading",
    ]


def test_a_fenced_block_is_one_memory_with_what_leads_to_it() -> None:
    content = "Deploy with:\n```sh\nmake\n\n- no bullet\n# no heading\n~~~\n```\nthen wait\n\nnext"
    assert _texts(content) == ["Deploy with:\n```sh\nmake\n\n- no bullet\n# no heading\n~~~\n```\nthen wait", "next"]


def test_new_memories_keep_the_order_of_the_file_in_their_times() -> None:
    found = _read("one\n\ntwo\n\none")
    times = [chain.memories[0].created_at for chain in found if isinstance(chain, Chain)]
    assert times == [NOW + "0Z", NOW + "1Z", NOW + "2Z"]


def test_a_byte_order_mark_is_no_text() -> None:
    assert _texts("\ufeff- one") == ["one"]
    assert _texts('\ufeff{"type":"relation","from":"a","to":"b","relationType":"is"}') == ["a is b"]


def test_what_is_too_large_or_no_utf8_is_skipped_by_its_line() -> None:
    large = "word " * (MEMORY_BYTES_MAX // 5) + "\n"
    content = (f"fits\n\n{large}{large}\n").encode() + b"caf\xe9\nstill the same\n\nlast"
    first, too_large, broken, last = _read(content)
    assert isinstance(first, Chain)
    assert isinstance(last, Chain)
    assert isinstance(too_large, Skipped)
    assert too_large.line == 3
    assert str(MEMORY_BYTES_MAX) in too_large.reason
    assert broken == Skipped(6, "is not valid UTF-8")
    assert _skipped(as_line(_chain("a")) + b'{"history": "\xff"}') == [Skipped(2, "is not valid UTF-8")]


def test_a_line_longer_than_any_chain_is_skipped_without_being_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cavemem_mcp.formats.LINE_BYTES_MAX", 1000)
    skipped, chain = _read("a" * 5000 + "\n\nnext\n")
    assert skipped == Skipped(1, "is longer than 1000 bytes")
    assert isinstance(chain, Chain)
    assert chain.memories[0].text == "next"


@pytest.mark.parametrize("content", ["", "\n \n", "# only\n## headings\n---\n"])
def test_a_file_without_memories_gives_none(content: str) -> None:
    assert _read(content) == []


@given(st.binary())
def test_any_bytes_are_read_without_a_crash(content: bytes) -> None:
    for found in _read(content):
        assert found.line >= 1
