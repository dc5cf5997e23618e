"""Export, import and backup: nothing is lost on the way, nothing is added twice, nothing that is stored changes."""

import io
import tarfile
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cavemem_mcp import Cavemem, Memory, OperationFailedError, StoreError, open_memory, portability
from cavemem_mcp.model import recovery_handle
from cavemem_mcp.portability import Exported, Imported

NOW_NS = 1_800_000_000_000_000_000


def _export(memory: Cavemem) -> bytes:
    written = io.BytesIO()
    portability.export(memory, written.write, lambda _: None)
    return written.getvalue()


def _import(memory: Cavemem, content: bytes | str) -> Imported:
    stream = io.BytesIO(content.encode() if isinstance(content, str) else content)
    return portability.import_(memory, stream, NOW_NS, lambda _: None)


def _everything(memory: Cavemem) -> list[Memory]:
    with memory.store.read() as snapshot:
        return list(snapshot.memories())


@pytest.fixture
def other(tmp_path: Path) -> Generator[Cavemem]:
    with closing(open_memory(tmp_path / "other")) as memory:
        yield memory


def _chain_of_three(memory: Cavemem) -> list[str]:
    first = memory.remember("deploys on Friday").id
    second = memory.supersede(first, "deploys on Monday").id
    return [first, second, memory.supersede(second, "deploys on Tuesday").id]


def test_chains_and_times_arrive_as_they_were(memory: Cavemem, other: Cavemem) -> None:
    ids = _chain_of_three(memory)
    memory.remember("Zoë drinks tea\n")
    memory.forget(ids[1])
    imported = _import(other, _export(memory))
    assert (imported.chains, imported.memories, imported.present, imported.skipped) == (2, 3, 0, [])
    assert _everything(other) == _everything(memory)
    assert [hit.text for hit in other.recall("tuesday deploys friday").hits] == ["deploys on Tuesday"]


def test_a_second_import_changes_nothing(memory: Cavemem, other: Cavemem) -> None:
    _chain_of_three(memory)
    exported = _export(memory)
    _import(other, exported)
    before = _everything(other)
    again = _import(other, exported)
    assert (again.chains, again.memories, again.present, again.skipped) == (0, 0, 1, [])
    assert _everything(other) == before
    notes = "- one\n- two\n- one\n"
    assert (_import(other, notes).chains, _import(other, notes).present) == (2, 3)


def test_a_chain_that_went_on_elsewhere_goes_on_here(memory: Cavemem, other: Cavemem) -> None:
    first = memory.remember("deploys on Friday").id
    _import(other, _export(memory))
    memory.supersede(first, "deploys on Monday")
    imported = _import(other, _export(memory))
    assert (imported.chains, imported.memories) == (1, 1)
    assert _everything(other) == _everything(memory)
    assert [hit.text for hit in other.recall("deploys").hits] == ["deploys on Monday"]


def test_what_contradicts_the_store_is_skipped_and_changes_nothing(memory: Cavemem, other: Cavemem) -> None:
    first, second, _ = _chain_of_three(memory)
    exported = _export(memory)
    _import(other, exported)
    other.forget(second)
    before = _everything(other)
    (skipped,) = _import(other, exported).skipped
    assert skipped.line == 1
    assert "another predecessor" in skipped.reason or "not all earlier ones" in skipped.reason
    assert _everything(other) == before
    (skipped,) = _import(other, "deploys on Friday").skipped
    assert first in skipped.reason
    assert _everything(other) == before


@pytest.mark.parametrize(
    ("stored", "arriving", "reason"),
    [
        (["a one", "b two"], ["a one"], "has been superseded in the store"),
        (["a one", "b two"], ["a one", "c three"], "has been superseded in the store"),
        (["b two"], ["a one", "b two"], "not all earlier ones"),
        (["x zero", "a one"], ["a one", "b two"], "another predecessor"),
    ],
)
def test_each_contradiction_has_its_reason(
    memory: Cavemem, other: Cavemem, stored: list[str], arriving: list[str], reason: str
) -> None:
    for target, texts in ((other, stored), (memory, arriving)):
        id = target.remember(texts[0]).id
        for text in texts[1:]:
            id = target.supersede(id, text).id
    before = _everything(other)
    (skipped,) = _import(other, _export(memory)).skipped
    assert reason in skipped.reason
    assert _everything(other) == before


def test_an_end_that_was_forgotten_elsewhere_does_not_end_a_memory_here(memory: Cavemem, other: Cavemem) -> None:
    first = memory.remember("deploys on Friday").id
    memory.forget(memory.supersede(first, "deploys on Monday").id)
    other.remember("deploys on Friday")
    (skipped,) = _import(other, _export(memory)).skipped
    assert "is still current in the store" in skipped.reason
    assert other.recall("deploys").hits


def test_a_hash_collision_is_skipped(memory: Cavemem, folder: Path) -> None:
    memory.remember("a fact")
    exported = _export(memory)
    with closing(apsw.Connection(str(folder / "mem.db"))) as connection:
        connection.execute("UPDATE memories SET text = 'another'")
    (skipped,) = _import(memory, exported).skipped
    assert "taken by another text" in skipped.reason


def test_broken_chains_are_exported_version_by_version(memory: Cavemem, other: Cavemem, folder: Path) -> None:
    _, second, _ = _chain_of_three(memory)
    with closing(apsw.Connection(str(folder / "mem.db"))) as connection:
        connection.execute("DELETE FROM memories WHERE id = ?", (second,))
    written = io.BytesIO()
    exported = portability.export(memory, written.write, lambda _: None)
    assert exported == Exported(memories=2, chains=2, broken=2)
    assert _import(other, written.getvalue()).chains == 2
    assert [hit.text for hit in other.recall("friday tuesday").hits] == ["deploys on Tuesday"]


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.text("abc ", min_size=1).filter(str.strip), min_size=1, max_size=4), max_size=8), st.data())
def test_any_store_survives_the_way_through_a_file(
    tmp_path_factory: pytest.TempPathFactory, chains: list[list[str]], data: st.DataObject
) -> None:
    home = tmp_path_factory.mktemp("stores")
    with closing(open_memory(home / "from")) as source, closing(open_memory(home / "to")) as target:
        for texts in chains:
            try:
                id = source.remember(texts[0]).id
                for text in texts[1:]:
                    id = source.supersede(id, text).id
            except OperationFailedError:
                continue
        stored = [memory.id for memory in _everything(source)]
        if stored:
            source.forget(data.draw(st.sampled_from(stored)))
        lines = _export(source).splitlines(keepends=True)
        assert _import(target, b"".join(data.draw(st.permutations(lines)))).skipped == []
        assert _everything(target) == _everything(source)
        assert _import(target, b"".join(lines)).present == len(lines)


def test_a_store_that_fails_keeps_whole_chains_and_says_where_to_go_on(
    memory: Cavemem, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portability, "BATCH_MEMORIES", 2)
    lines = "".join(f"- fact {number}\n" for number in range(4))
    with closing(apsw.Connection(str(folder / "mem.db"))) as connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON memories WHEN NEW.text = 'fact 3'"
            " BEGIN SELECT RAISE(FAIL, 'no more'); END"
        )
    with pytest.raises(StoreError, match="what stands before line 3 of the file is imported"):
        _import(memory, lines)
    assert {found.text for found in _everything(memory)} == {"fact 0", "fact 1"}


def test_a_backup_is_a_home_that_can_be_used(memory: Cavemem, tmp_path: Path) -> None:
    text = "payment gateway\n" * 3000
    _chain_of_three(memory)
    memory.remember(text)
    assert memory.recall("payment").hits[0].recovery_handle
    archive = tmp_path / "backup.tar"
    size = portability.backup(memory, archive)
    memory.remember("later")
    assert archive.stat().st_size >= size > len("".join(found.text for found in _everything(memory))) // 10
    assert archive.stat().st_mode & 0o777 == 0o600
    with tarfile.open(archive) as tar:
        assert sorted(tar.getnames()) == ["mem", "mem/ccr.db", "mem/mem.db"]
        tar.extractall(tmp_path / "restored", filter="data")
    with closing(open_memory(tmp_path / "restored" / "mem")) as restored:
        assert _everything(restored) == [found for found in _everything(memory) if found.text != "later"]
        assert restored.recovery.recover(recovery_handle(text)) == text.encode()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_backup_while_others_write_is_whole(memory: Cavemem, folder: Path, tmp_path: Path) -> None:
    memory.remember("before")
    with closing(apsw.Connection(str(folder / "mem.db"))) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("INSERT INTO memories VALUES ('mem_x', 'not committed', '2026', '2026', NULL, NULL, NULL)")
        portability.backup(memory, tmp_path / "backup.tar")
        writer.execute("COMMIT")
    with tarfile.open(tmp_path / "backup.tar") as tar:
        tar.extractall(tmp_path / "restored", filter="data")
    with closing(apsw.Connection(str(tmp_path / "restored" / "mem" / "mem.db"))) as connection:
        assert connection.execute("SELECT text FROM memories").get == "before"
        assert connection.execute("PRAGMA integrity_check").get == "ok"


def test_a_file_that_exists_is_never_written_over(memory: Cavemem, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    with pytest.raises(StoreError, match="give another name"):
        portability.backup(memory, taken)
    assert taken.read_text() == "mine"
    with pytest.raises(StoreError, match="nothing was written"):
        portability.backup(memory, tmp_path / "missing" / "backup.tar")


def _write_half(path: Path, fault: Exception) -> None:
    with portability.new_file(path) as stream:
        stream.write(b"half")
        raise fault


def test_a_file_that_cannot_be_finished_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        _write_half(tmp_path / "file", ZeroDivisionError())
    with pytest.raises(StoreError, match="No space left on device; nothing was written"):
        _write_half(tmp_path / "file", OSError(28, "No space left on device"))
    assert list(tmp_path.iterdir()) == []
