"""Originals come back byte for byte or not at all, within the bound, also those that the Go program kept."""

import os
import stat
import threading
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import zstandard
from hypothesis import given, settings

from cavemem_mcp.errors import StoreError
from cavemem_mcp.model import handle_of, recovery_handle
from cavemem_mcp.recovery import ORIGINAL_BYTES_MAX, Original, RecoveryStore
from cavemem_mcp.store import files
from tests.store.foreign import ForeignProgram


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "home" / "mem"


@pytest.fixture
def recovery(folder: Path) -> Generator[RecoveryStore]:
    with closing(RecoveryStore(folder)) as recovery:
        yield recovery


def original(text: str, **others: Any) -> Original:
    values: dict[str, Any] = {
        "handle": recovery_handle(text),
        "text": text,
        "created_at": "2026-01-31T08:00:00.000000001Z",
        "compressor": "head",
        "tokens_before": 100,
        "tokens_after": 7,
    }
    return Original(**{**values, **others})


def keep(recovery: RecoveryStore, text: str) -> bool:
    return recovery.keep(original(text), is_wanted=lambda: True)


def incompressible(size: int) -> str:
    return os.urandom(size).hex()[:size]


def test_an_original_comes_back_exactly(recovery: RecoveryStore) -> None:
    assert keep(recovery, "\0 e\u0301 \U0001f600 \r\n" * 50)

    assert (
        recovery.recover(recovery_handle("\0 e\u0301 \U0001f600 \r\n" * 50))
        == b"\0 e\xcc\x81 \xf0\x9f\x98\x80 \r\n" * 50
    )


def test_any_text_comes_back_exactly(tmp_path: Path) -> None:
    with closing(RecoveryStore(tmp_path)) as recovery:

        @settings(max_examples=50, deadline=None)
        @given(st.text(st.characters(exclude_categories=["Cs"]), max_size=300))
        def check(text: str) -> None:
            assert keep(recovery, text)
            assert recovery.recover(recovery_handle(text)) == text.encode()

        check()


def test_what_is_kept_says_what_was_made_of_it(recovery: RecoveryStore, folder: Path) -> None:
    keep(recovery, "ant " * 1000)

    with ForeignProgram(folder / "ccr.db") as another:
        rows = another.run("SELECT * FROM originals")
        columns = another.run("SELECT name FROM pragma_table_info('originals')")
    assert [name for (name,) in columns] == [
        "handle",
        "created_at",
        "content_type",
        "compressor",
        "tokens_before",
        "tokens_after",
        "size",
        "original",
    ]
    ((*described, size, stored),) = rows
    assert described == [
        recovery_handle("ant " * 1000),
        "2026-01-31T08:00:00.000000001Z",
        "text",
        "head",
        100,
        7,
    ]
    assert size == len(stored) < 100
    assert zstandard.ZstdDecompressor().decompress(stored) == b"ant " * 1000


def test_the_file_appears_with_the_first_original(recovery: RecoveryStore, folder: Path) -> None:
    assert recovery.recover("ccr_unknown") is None
    recovery.discard(["ccr_unknown"])
    assert not folder.exists()

    keep(recovery, "ant")

    assert stat.S_IMODE((folder / "ccr.db").stat().st_mode) == 0o600
    assert recovery.recover("ccr_unknown") is None


def test_an_original_that_is_not_wanted_is_not_kept(recovery: RecoveryStore) -> None:
    assert not recovery.keep(original("ant"), is_wanted=lambda: False)

    assert recovery.recover(recovery_handle("ant")) is None


def test_keeping_again_keeps_one(recovery: RecoveryStore, folder: Path) -> None:
    assert keep(recovery, "ant")
    assert keep(recovery, "ant")

    with ForeignProgram(folder / "ccr.db") as another:
        assert another.run("SELECT count(*) FROM originals") == [(1,)]


def test_the_bound_holds_and_what_is_kept_stays(folder: Path) -> None:
    texts = [incompressible(1000) for _ in range(12)]
    with closing(RecoveryStore(folder, bytes_max=4000)) as recovery:
        kept = [text for text in texts if keep(recovery, text)]

        assert 0 < len(kept) < len(texts)
        assert not keep(recovery, incompressible(1000))
        assert all(recovery.recover(recovery_handle(text)) == text.encode() for text in kept)
        with ForeignProgram(folder / "ccr.db") as another:
            ((stored_bytes,),) = another.run("SELECT sum(length(original)) FROM originals")
        assert 3000 < stored_bytes <= 4000

        recovery.discard([recovery_handle(kept[0])])
        assert keep(recovery, texts[-1])


def test_a_bound_below_any_original_creates_no_file(folder: Path) -> None:
    with closing(RecoveryStore(folder, bytes_max=0)) as recovery:
        assert not keep(recovery, "ant")

    assert not folder.exists()


def test_the_used_bytes_are_read_without_the_originals(recovery: RecoveryStore, folder: Path) -> None:
    keep(recovery, "ant")

    with ForeignProgram(folder / "ccr.db") as another:
        (plan,) = another.run("EXPLAIN QUERY PLAN SELECT coalesce(sum(size), 0) FROM originals")
    assert "COVERING INDEX originals_size" in plan[3]


def frame(data: bytes, **options: Any) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(data)


DAMAGED = {
    "another_text": frame(b"bee"),
    "no_frame": b"ant",
    "cut": frame(os.urandom(100))[:-10],
    "empty": b"",
    "followed_by_more": frame(b"ant") + b"more",
    "without_a_size": frame(b"ant", write_content_size=False),
    "larger_than_any_original": frame(bytes(ORIGINAL_BYTES_MAX + 1)),
    "claims_petabytes": b"\x28\xb5\x2f\xfd\xe0" + (1 << 60).to_bytes(8, "little") + b"\x01\x00\x00",
}


@pytest.mark.parametrize("damaged", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_original_is_an_error_and_never_wrong_bytes(
    recovery: RecoveryStore, folder: Path, damaged: bytes
) -> None:
    keep(recovery, "ant")
    with ForeignProgram(folder / "ccr.db") as another:
        another.run("UPDATE originals SET original = ?", damaged)

    with pytest.raises(StoreError, match=f"the original behind {recovery_handle('ant')} is damaged"):
        recovery.recover(recovery_handle("ant"))


def test_a_text_larger_than_any_original_is_not_kept(recovery: RecoveryStore, folder: Path) -> None:
    assert not keep(recovery, "a" * (ORIGINAL_BYTES_MAX + 1))
    assert not folder.exists()


GO_TABLES = {
    "blob": "CREATE TABLE recoveries(handle TEXT PRIMARY KEY, original BLOB NOT NULL, created_at TEXT)",
    "text": "CREATE TABLE recoveries(created_at TEXT, content TEXT, handle TEXT)",
    'odd "names"': 'CREATE TABLE recoveries("the ""raw"" bytes", size INTEGER, handle TEXT NOT NULL)',
}


@pytest.mark.parametrize("table", GO_TABLES.values(), ids=GO_TABLES.keys())
def test_handles_minted_by_the_go_program_recover_and_are_erased(folder: Path, table: str) -> None:
    data = "gopher wrote this \U0001f600 ".encode() * 300
    handle = handle_of(data)
    folder.mkdir(parents=True)
    with ForeignProgram(folder / "ccr.db") as another:
        another.run(table)
        column = next(
            name
            for (name,) in another.run("SELECT name FROM pragma_table_info('recoveries')")
            if name not in ("handle", "created_at", "size")
        )
        quoted = column.replace('"', '""')
        value = data.decode() if column == "content" else data
        another.run(f'INSERT INTO recoveries(handle, "{quoted}") VALUES (?, ?)', handle, value)
        another.run(f'INSERT INTO recoveries(handle, "{quoted}") VALUES (?, ?)', "ccr_wrong", b"something else")

        with closing(RecoveryStore(folder)) as recovery:
            assert recovery.recover(handle) == data
            assert recovery.recover("ccr_unknown") is None
            with pytest.raises(StoreError, match="the original behind ccr_wrong is damaged"):
                recovery.recover("ccr_wrong")
            keep(recovery, "ant")

            recovery.discard([handle])

            assert recovery.recover(handle) is None
            assert recovery.recover(recovery_handle("ant")) == b"ant"
        assert another.run("SELECT handle FROM recoveries") == [("ccr_wrong",)]
    assert not any(b"gopher" in path.read_bytes() for path in folder.iterdir())


def test_a_table_of_the_go_program_without_handles_is_ignored(folder: Path) -> None:
    folder.mkdir(parents=True)
    with ForeignProgram(folder / "ccr.db") as another:
        another.run("CREATE TABLE recoveries(key TEXT, value BLOB)")
        with closing(RecoveryStore(folder)) as recovery:
            assert recovery.recover("ccr_1") is None
            recovery.discard(["ccr_1"])


@pytest.mark.parametrize("size", [100, 3000, 300_000])
def test_a_discarded_original_leaves_no_byte(folder: Path, size: int) -> None:
    texts = [incompressible(size) for _ in range(5)]
    with closing(RecoveryStore(folder)) as recovery:
        keep(recovery, texts[0])
    with closing(RecoveryStore(folder)) as recovery, ForeignProgram(folder / "ccr.db") as idle:
        for text in texts[1:]:
            keep(recovery, text)
        stored = [original for (original,) in idle.run("SELECT original FROM originals")]

        recovery.discard([recovery_handle(text) for text in texts[1:]])

        contents = b"".join(path.read_bytes() for path in folder.iterdir())
        for original in stored[1:]:
            pieces = [original[at : at + 30] for at in range(20, len(original) - 50, 700)]
            assert pieces
            assert not any(piece in contents for piece in pieces)
        assert stored[0][20:50] in contents
        assert recovery.recover(recovery_handle(texts[0])) == texts[0].encode()
        assert idle.run("PRAGMA integrity_check") == [("ok",)]


def test_a_discard_beside_a_long_reader_succeeds_and_is_scrubbed_at_the_next_open(
    recovery: RecoveryStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BUSY_MS_MAX", 100)
    text = incompressible(3000)
    keep(recovery, text)
    with ForeignProgram(folder / "ccr.db") as reader:
        ((stored,),) = reader.run("SELECT original FROM originals")
        reader.run("BEGIN")
        reader.run("SELECT count(*) FROM originals")

        assert not recovery.discard([recovery_handle(text)])

        assert recovery.recover(recovery_handle(text)) is None
        reader.run("COMMIT")

        with closing(RecoveryStore(folder)) as reopened:
            assert reopened.recover("ccr_unknown") is None
        assert not any(stored[100:130] in path.read_bytes() for path in folder.iterdir())


def test_a_file_that_is_no_database_is_told_and_kept(recovery: RecoveryStore, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "ccr.db").write_bytes(b"precious notes\n" * 500)

    with pytest.raises(StoreError, match="not a database; nothing was replaced"):
        keep(recovery, "ant")

    assert (folder / "ccr.db").read_bytes() == b"precious notes\n" * 500


def test_a_symbolic_link_is_refused(recovery: RecoveryStore, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "ccr.db").symlink_to(folder / "elsewhere")

    with pytest.raises(StoreError, match="symbolic link"):
        recovery.recover("ccr_1")


def test_a_newer_file_is_refused_with_advice(recovery: RecoveryStore, folder: Path) -> None:
    folder.mkdir(parents=True)
    with ForeignProgram(folder / "ccr.db") as another:
        another.run("PRAGMA user_version = 99")

    with pytest.raises(StoreError, match=r"layout 99.*upgrade cavemem"):
        recovery.recover("ccr_1")


def test_a_lock_held_by_another_program_is_told(
    recovery: RecoveryStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(recovery, "ant")
    monkeypatch.setattr(files, "BUSY_MS_MAX", 100)
    with ForeignProgram(folder / "ccr.db") as another:
        another.run("BEGIN IMMEDIATE")

        with pytest.raises(StoreError, match="another program holds the store"):
            keep(recovery, "bee")
        assert keep(recovery, "ant"), "what is kept already needs no lock"
        assert recovery.recover(recovery_handle("ant")) == b"ant"


def test_threads_keep_and_recover_at_once(recovery: RecoveryStore) -> None:
    failures: list[BaseException] = []

    def use(worker: int) -> None:
        try:
            for number in range(10):
                text = f"worker {worker} original {number} " * 50
                assert keep(recovery, text)
                assert recovery.recover(recovery_handle(text)) == text.encode()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []


def test_a_closed_recovery_store_says_so_and_closes_again(recovery: RecoveryStore) -> None:
    keep(recovery, "ant")
    recovery.close()
    recovery.close()

    with pytest.raises(StoreError, match="was closed; open the store again"):
        recovery.recover(recovery_handle("ant"))
