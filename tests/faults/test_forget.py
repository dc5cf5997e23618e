"""Forget leaves nothing: after it, no file of the folder shares 16 bytes with the text or with its kept original.

Where another process reads an old state, that holds as soon as it has let go.
"""

import json
import random
import string
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from cavemem_mcp import Cavemem, upkeep
from cavemem_mcp.errors import OperationFailedError
from cavemem_mcp.model import MEMORY_BYTES_MAX, recovery_handle
from cavemem_mcp.store import files
from tests.faults.inspection import PIECE_BYTES, check_files, pieces_in_files
from tests.faults.other_process import OtherProcess
from tests.server.processes import poll

FRAME_HEAD_BYTES = 24
"""How frames of other texts may begin too."""


def random_words(rng: random.Random, size: int) -> str:
    """Return words of up to 30 letters, so that two texts share no 16 bytes and single terms are that long too."""
    text = ""
    while len(text) < size:
        text += "".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 30))) + " "
    return text[:size]


def random_records(rng: random.Random, size: int) -> str:
    one, other = random_words(rng, 14), random_words(rng, 14)  # names of its own, so that no record is another's
    return json.dumps([{one: random_words(rng, 60), other: rng.randrange(10**9)} for _ in range(size // 120 + 3)])


def random_log(rng: random.Random, size: int) -> str:
    return "\n".join(f"{random_words(rng, 40)} ERROR {rng.randrange(10**9)}" for _ in range(size // 60 + 3))


def random_han(rng: random.Random, size: int) -> str:
    return "".join(map(chr, rng.choices(range(0x4E00, 0x9FA0), k=size // 3)))


KINDS: dict[str, Callable[[random.Random, int], str]] = {
    "words": random_words,
    "records": random_records,
    "log": random_log,
    "han": random_han,
}
SIZES = {"short": 60, "a page": 3000, "many pages": 20_000}


@pytest.fixture
def neighbours(memory: Cavemem, rng: random.Random) -> dict[str, str]:
    """Memories that stay, by id, of all sizes; some of them have kept originals."""
    texts = [random_words(rng, rng.choice([40, 300, 1500, 6000])) for _ in range(12)]
    texts += [random_records(rng, 4000) for _ in range(2)]
    stored = {memory.remember(text).id: text for text in texts}
    for text in texts[:3] + texts[-2:]:
        recalled_handle(memory, text)
    return stored


@pytest.fixture(autouse=True)
def _the_rest_is_untouched(memory: Cavemem, neighbours: dict[str, str], folder: Path) -> Generator[None]:
    yield
    for id, text in neighbours.items():
        assert memory.history(id).history[-1].text == text
        assert memory.original(recovery_handle(text)) == text.encode()
    check_files(folder)


def recalled_handle(memory: Cavemem, text: str) -> str:
    """Recall a text so that it is shortened, whatever it is; its original is kept then."""
    (hit,) = memory.recall(text[:100], limit=1, token_budget=8).hits
    handle = recovery_handle(text)
    assert hit.recovery_handle == handle
    return handle


def kept_frame(folder: Path, handle: str) -> bytes:
    with closing(apsw.Connection(str(folder / "ccr.db"), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        ((frame,),) = connection.execute("SELECT original FROM originals WHERE handle = ?", (handle,))
    assert len(frame) > FRAME_HEAD_BYTES + PIECE_BYTES
    return frame[FRAME_HEAD_BYTES:]


def traces(texts: list[str], frames: list[bytes]) -> list[bytes]:
    return [text.encode() for text in texts] + [text.lower().encode() for text in texts] + frames


def check_gone(memory: Cavemem, handle: str) -> None:
    with pytest.raises(OperationFailedError, match="nothing is kept"):
        memory.recover(handle)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())
def test_a_forgotten_text_and_its_original_are_in_no_file(
    memory: Cavemem,
    folder: Path,
    rng: random.Random,
    figures: Counter[str],
    make: Callable[[random.Random, int], str],
    size: int,
) -> None:
    text = make(rng, size)
    id = memory.remember(text).id
    handle = recalled_handle(memory, text)
    sought = traces([text], [kept_frame(folder, handle)])
    assert pieces_in_files(folder, sought).keys() >= {"mem.db-wal", "ccr.db-wal"}

    assert memory.forget(id).forgotten

    assert not pieces_in_files(folder, sought)
    check_gone(memory, handle)
    figures["pieces of 16 bytes of forgotten texts sought in all files"] += sum(map(len, sought))


def test_the_largest_memory_is_in_no_file_once_forgotten(
    memory: Cavemem, folder: Path, rng: random.Random, figures: Counter[str]
) -> None:
    text = random_words(rng, MEMORY_BYTES_MAX)
    id = memory.remember(text).id

    assert memory.forget(id).forgotten

    assert not pieces_in_files(folder, [text.encode()])
    figures["pieces of 16 bytes of forgotten texts sought in all files"] += len(text)


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]], ids=str)
def test_each_version_of_a_chain_leaves_nothing(
    memory: Cavemem, folder: Path, rng: random.Random, figures: Counter[str], order: list[int]
) -> None:
    texts = [random_words(rng, size) for size in (80, 5000, 300, 20_000)]
    ids, frames = [memory.remember(texts[0]).id], list[bytes]()
    for number, text in enumerate(texts):
        if number:
            ids.append(memory.supersede(ids[-1], text).id)
        frames.append(kept_frame(folder, recalled_handle(memory, text)))

    for place, number in enumerate(order):
        assert memory.forget(ids[number]).forgotten

        sought = traces([texts[number]], [frames[number]])
        assert not pieces_in_files(folder, sought)
        left = [texts[other] for other in range(4) if other not in order[: place + 1]]
        assert all(pieces_in_files(folder, [text.encode()]) for text in left)
        figures["pieces of 16 bytes of forgotten texts sought in all files"] += sum(map(len, sought))


def test_nothing_stays_while_pages_are_split_and_joined(
    memory: Cavemem, folder: Path, rng: random.Random, figures: Counter[str], sized: Callable[[int, int], int]
) -> None:
    current: dict[str, str] = {}
    gone: list[str] = []
    for step in range(sized(150, 6000)):
        choice = rng.random()
        text = KINDS[rng.choice(list(KINDS))](rng, rng.choice([30, 120, 700, 2500, 9000]))
        if choice < 0.5 or len(current) < 20:
            current[memory.remember(text).id] = text
            continue
        id = rng.choice(list(current))
        if choice < 0.6:
            del current[id]
            current[memory.supersede(id, text).id] = text
            continue
        assert memory.forget(id).forgotten
        gone.append(current.pop(id))
        if step % 10 == 0:  # also the earlier ones: what connections remember must not bring them back
            assert not pieces_in_files(folder, traces(gone, []))
            figures["pieces of 16 bytes of forgotten texts sought in all files"] += sum(map(len, gone))
    assert not pieces_in_files(folder, traces(gone, []))
    figures["memories forgotten among others that move"] += len(gone)


def test_a_process_of_ours_that_idles_or_writes_keeps_nothing(
    memory: Cavemem, folder: Path, rng: random.Random
) -> None:
    text = random_words(rng, 9000)
    id = memory.remember(text).id
    with OtherProcess() as another:
        another.call("open", folder)
        assert another.call("recall", text, limit=1)["hits"][0]["id"] == id  # its caches have the pages now

        assert memory.forget(id).forgotten
        assert not pieces_in_files(folder, [text.encode()])

        for number in range(20):
            another.call("remember", f"written later {number}")
            assert not pieces_in_files(folder, [text.encode()])
        assert id not in [hit["id"] for hit in another.call("recall", text, limit=1000, token_budget=None)["hits"]]


def test_what_another_process_reads_goes_when_it_has_read(
    memory: Cavemem, folder: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, figures: Counter[str]
) -> None:
    monkeypatch.setattr(files, "BUSY_MS_MAX", 100)
    monkeypatch.setattr(upkeep, "PAUSE_SECONDS_MAX", upkeep.PAUSE_SECONDS_MIN)
    texts = [random_words(rng, size) for size in (60, 3000, 30_000)]
    ids = [memory.remember(text).id for text in texts]
    handles = [recalled_handle(memory, text) for text in texts]
    sought = traces(texts, [kept_frame(folder, handle) for handle in handles])
    with OtherProcess() as reader:
        reader.call("open", folder)
        reader.begin_reading()

        for id, handle in zip(ids, handles, strict=True):
            # What the answer says is true: the memory is gone for everybody who asks from now on.
            assert memory.forget(id).forgotten
            assert not memory.forget(id).forgotten
            check_gone(memory, handle)
        recalled = memory.recall(" ".join(text[:100] for text in texts), limit=1000).hits
        assert not {hit.id for hit in recalled}.intersection(ids)
        assert pieces_in_files(folder, sought)

        reader.end()
        poll(lambda: not memory.store.pending_erasures())

        assert not pieces_in_files(folder, sought)
        assert [reader.call("recover", handle).get("error") for handle in handles] == ["cave_recover_failed"] * 3
    figures["pieces of 16 bytes of forgotten texts sought in all files"] += sum(map(len, sought))
