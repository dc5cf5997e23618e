"""Every measured expectation of recall, through the real stdio server."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.live import answer, stdio_client

CORPORA: list[dict[str, Any]] = json.loads((Path(__file__).parent.parent / "data" / "recall.json").read_text())[
    "corpora"
]


@pytest.mark.parametrize("corpus", CORPORA, ids=lambda corpus: corpus["name"])
async def test_recall_gives_the_measured_hits(corpus: dict[str, Any], tmp_path: Path) -> None:
    async with stdio_client(tmp_path) as client:
        for text in corpus["memories"]:
            assert "id" in await answer(client, "remember", text=text)
        for case in corpus["cases"]:
            expected = case["hits"]
            arguments = {key: value for key, value in case.items() if key != "hits"}
            hits = (await answer(client, "recall", **arguments))["hits"]
            assert [hit["id"] for hit in hits] == [hit["id"] for hit in expected], case
            for hit, wanted in zip(hits, expected, strict=True):
                assert math.isclose(hit["score"], wanted["score"], rel_tol=1e-12), case
                assert ("recovery_handle" in hit) == wanted.get("partial", False), case
                if "tokens_added" in wanted:
                    assert hit["tokens_added"] == wanted["tokens_added"], case
