"""Many processes on one store: nothing is lost, and one memory is superseded once."""

import json
from pathlib import Path

from cavemem_mcp.model import memory_id
from tests.live import cavemem, finish, start

PROCESSES = 32


def test_thirty_two_processes_remember_supersede_and_forget_at_once(tmp_path: Path) -> None:
    home = tmp_path / "absent" / "home"
    texts = [f"fact number {number}" for number in range(PROCESSES)]
    changed = [f"changed fact {number}" for number in range(PROCESSES)]

    remembered = finish([start(home, "remember", text) for text in texts])
    assert [code for code, _, _ in remembered] == [0] * PROCESSES, remembered
    assert [json.loads(out)["id"] for _, out, _ in remembered] == [memory_id(text) for text in texts]

    pairs = zip(texts, changed, strict=True)
    superseded = finish([start(home, "supersede", memory_id(old), new) for old, new in pairs])
    assert [code for code, _, _ in superseded] == [0] * PROCESSES, superseded

    forgotten = finish([start(home, "forget", memory_id(text)) for text in texts])
    assert [json.loads(out) for _, out, _ in forgotten] == [{"forgotten": True}] * PROCESSES, forgotten

    left = json.loads(cavemem(home, "recall", " ".join(map(str, range(PROCESSES))), "100", "0").stdout)
    assert {hit["text"] for hit in left["hits"]} == set(changed)


def test_sixteen_processes_supersede_one_memory_and_exactly_one_wins(tmp_path: Path) -> None:
    id = json.loads(cavemem(tmp_path, "remember", "the only fact").stdout)["id"]
    results = finish([start(tmp_path, "supersede", id, f"version {number}") for number in range(16)])
    won = [json.loads(out) for code, out, _ in results if code == 0]
    lost = [json.loads(err) for code, _, err in results if code == 1]
    assert (len(won), len(lost)) == (1, 15), results
    assert {refused["error"] for refused in lost} == {"cave_supersede_failed"}
    assert all(won[0]["id"] in refused["message"] for refused in lost)
    versions = json.loads(cavemem(tmp_path, "history", id).stdout)["history"]
    assert [version["id"] for version in versions] == [id, won[0]["id"]]
