"""Many processes and threads at one store: nobody fails, nothing is lost, nothing forgotten comes back."""

import random
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from cavemem_mcp.model import Memory, memory_id, recovery_handle
from cavemem_mcp.recovery import Original, RecoveryStore
from cavemem_mcp.service import Cavemem
from cavemem_mcp.store import Transaction
from cavemem_mcp.store.sqlite import SqliteStore
from tests.store.foreign import ForeignProgram

PROCESSES = 32
_PROLOGUE = """
import sys
from contextlib import closing
from pathlib import Path
from cavemem_mcp.recovery import RecoveryStore
from cavemem_mcp.service import Cavemem
from cavemem_mcp.store.sqlite import SqliteStore
folder, argument = Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
with closing(Cavemem(SqliteStore(folder), RecoveryStore(folder))) as cavemem:
"""


def run_at_once(folder: Path, statement: str, arguments: Sequence[str]) -> list[str]:
    """Run a statement about `cavemem` and `argument` in one process for each argument; return what they print."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", f"{_PROLOGUE}    {statement}", str(folder), argument],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for argument in arguments
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate() for process in processes]
    assert [errors for _, errors in answers if errors] == []
    return [output.strip() for output, _ in answers]


def check_integrity(folder: Path) -> None:
    for path in folder.glob("*.db"):
        with ForeignProgram(path) as another:
            assert another.run("PRAGMA integrity_check") == [("ok",)]


def test_32_processes_at_once_write_into_a_folder_that_does_not_exist(folder: Path) -> None:
    texts = [f"fact number{number}" for number in range(PROCESSES)]

    ids = run_at_once(folder, "print(cavemem.remember(argument).id)", texts)

    assert ids == [memory_id(text) for text in texts]
    with closing(Cavemem(SqliteStore(folder), RecoveryStore(folder))) as cavemem:
        assert [cavemem.recall(text.split()[1]).hits[0].text for text in texts] == texts
    check_integrity(folder)


def test_32_processes_at_once_forget_and_leave_no_byte(folder: Path) -> None:
    texts = [f"secretnumber{number:04d} " * 50 for number in range(PROCESSES)]
    with closing(Cavemem(SqliteStore(folder), RecoveryStore(folder))) as cavemem:
        cavemem.remember("this stays")
        ids = [cavemem.remember(text).id for text in texts]
        for text in texts:
            assert cavemem.recall(text.split()[0], token_budget=5).hits[0].recovery_handle

        answers = run_at_once(folder, "print(cavemem.forget(argument).forgotten)", ids)

        assert answers == ["True"] * PROCESSES
        contents = b"".join(path.read_bytes() for path in folder.iterdir())
        assert b"secretnumber" not in contents
        assert [hit.text for hit in cavemem.recall("stays").hits] == ["this stays"]
    check_integrity(folder)


def test_threads_write_and_read_at_once(folder: Path) -> None:
    failures: list[BaseException] = []

    def use(store: SqliteStore, worker: int) -> None:
        try:
            for number in range(15):
                text = f"worker{worker} fact{number}"
                memory = Memory(id=memory_id(text), text=text, created_at="", valid_from="")
                store.write(lambda transaction, memory=memory: transaction.insert(memory))
                with store.read() as snapshot:
                    assert snapshot.document_frequencies([f"worker{worker}"]) == {f"worker{worker}": number + 1}
        except BaseException as error:
            failures.append(error)

    with closing(SqliteStore(folder)) as store:
        threads = [threading.Thread(target=use, args=(store, worker)) for worker in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with store.read() as snapshot:
            totals = snapshot.totals()

    assert failures == []
    assert totals == (8 * 15, 8 * 15 * 2)
    check_integrity(folder)


def original_of(text: str) -> Original:
    return Original(
        handle=recovery_handle(text), text=text, created_at="", compressor="head", tokens_before=2, tokens_after=1
    )


def test_an_original_kept_while_its_memory_is_forgotten_does_not_stay(folder: Path) -> None:
    text = "ant " * 100
    id, handle = memory_id(text), recovery_handle(text)
    with closing(SqliteStore(folder)) as store, closing(RecoveryStore(folder)) as recovery:
        forgetting = Cavemem(store, RecoveryStore(folder))  # as another process has its own
        forgetting.remember(text)
        forgetter = threading.Thread(target=forgetting.forget, args=(id,))

        def is_wanted() -> bool:
            with store.read() as snapshot:
                is_stored = snapshot.memory(id) is not None
            forgetter.start()  # right after the answer; its discard must wait for this transaction
            while True:
                with store.read() as snapshot:
                    if snapshot.memory(id) is None:
                        return is_stored

        assert recovery.keep(original_of(text), is_wanted=is_wanted)
        forgetter.join()

        assert recovery.recover(handle) is None


def test_an_original_whose_memory_is_gone_is_not_kept(folder: Path) -> None:
    with closing(SqliteStore(folder)) as store, closing(RecoveryStore(folder)) as recovery:
        cavemem = Cavemem(store, recovery)
        id = cavemem.remember("ant bee").id
        cavemem.forget(id)

        def is_wanted() -> bool:
            with store.read() as snapshot:
                return snapshot.memory(id) is not None

        assert not recovery.keep(original_of("ant bee"), is_wanted=is_wanted)
        assert recovery.recover(recovery_handle("ant bee")) is None


_RECALL_ALL = """
    while (text := sys.stdin.readline().strip()) != "end":
        hits = cavemem.recall(text, token_budget=5).hits
        assert all(hit.recovery_handle for hit in hits)
"""


def test_processes_that_recall_while_another_forgets_leave_no_original(folder: Path) -> None:
    texts = [f"fact{number} " * 60 for number in range(40)]
    source = random.Random(1)
    with closing(Cavemem(SqliteStore(folder), RecoveryStore(folder))) as cavemem:
        ids = [cavemem.remember(text).id for text in texts]
        recallers = [
            subprocess.Popen(
                [sys.executable, "-c", _PROLOGUE + _RECALL_ALL, str(folder), ""],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        for recaller in recallers:
            assert recaller.stdin is not None
            assert recaller.stdout is not None
            assert recaller.stdout.readline() == "ready\n"
            queries = [text.split()[0] for text in texts] * 2
            recaller.stdin.write("go\n" + "\n".join(queries) + "\nend\n")
            recaller.stdin.flush()
        for id in source.sample(ids, len(ids)):
            assert cavemem.forget(id).forgotten
        assert [recaller.wait() for recaller in recallers] == [0, 0]
        for recaller in recallers:
            recaller.communicate()

    with closing(RecoveryStore(folder)) as recovery:
        assert [text[:10] for text in texts if recovery.recover(recovery_handle(text)) is not None] == []
    check_integrity(folder)


def test_a_write_goes_through_as_soon_as_another_program_lets_go(store: SqliteStore, folder: Path) -> None:
    def insert(transaction: Transaction) -> None:
        transaction.insert(Memory(id="mem_1", text="ant", created_at="", valid_from=""))

    with ForeignProgram(folder / "mem.db") as another:
        another.run("BEGIN IMMEDIATE")
        writer = threading.Thread(target=store.write, args=(insert,))
        writer.start()
        writer.join(0.05)
        assert writer.is_alive()
        another.run("COMMIT")
        writer.join()

    with store.read() as snapshot:
        assert snapshot.memory("mem_1") is not None
