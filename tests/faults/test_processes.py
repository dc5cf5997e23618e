"""Many processes and clients at one store: nothing acknowledged is lost, nobody fails, and all see one history."""

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from cavemem_mcp import open_memory
from cavemem_mcp.model import memory_id, recovery_handle
from tests.faults.inspection import check_files, pieces_in_files
from tests.faults.other_process import OtherProcess
from tests.faults.reference import Outcome, Reference, Version, outcome
from tests.server.processes import LineClient, call, line_client, poll

SHARED = [f"shared fact {number} of everybody" for number in range(4)]

# Each process has facts of its own, of which it knows what must be there, and all contend for the shared ones.
WORKER = """
import json, random, sys, time
from pathlib import Path
from cavemem_mcp import open_memory
from cavemem_mcp.errors import OperationFailedError
from cavemem_mcp.model import memory_id

folder, name, seconds, seed, shared = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4], sys.argv[5:]
rng = random.Random(f"{seed} {name}")
memory = open_memory(folder)
own, forgotten, won, done, refused = {}, [], [], 0, 0
memory.recall(shared[0], token_budget=4)  # loads what the first recall needs
print("ready", flush=True)
sys.stdin.readline()
end = time.monotonic() + seconds

def fresh(of):
    unique = "".join(rng.choices("abcdefghijklmnop ", k=rng.choice([9, 2000])))
    return f"{of} number {rng.getrandbits(64):016x} {unique}"

def insist(call, *arguments):
    # An overloaded machine may refuse after 5 s: clearly, and with nothing changed that the message does not tell.
    global refused
    while True:
        try:
            return call(*arguments)
        except OperationFailedError as error:
            if "another program holds the store" not in error.message:
                raise
            refused += 1

while time.monotonic() < end:
    done += 1
    choice = rng.random()
    if choice < 0.35 or not own:
        text = fresh(name)
        own[insist(memory.remember, text).id] = [text]
    elif choice < 0.5:
        id = rng.choice(list(own))
        text = fresh(name)
        versions = own.pop(id)
        own[insist(memory.supersede, id, text).id] = [*versions, text]
    elif choice < 0.6:
        id = rng.choice(list(own))
        versions = own.pop(id)
        for text in versions:
            assert insist(memory.forget, memory_id(text)).forgotten or refused
            forgotten.append(text)
    elif choice < 0.75:
        id = rng.choice(list(own))
        hits = memory.recall(own[id][-1].split()[2], token_budget=None).hits
        assert [hit.id for hit in hits] == [id], "a word of its own finds what was stored, and nothing else"
        assert hits[0].recovery_handle is None or memory.recover(hits[0].recovery_handle).text == own[id][-1]
    elif choice < 0.85:
        id = rng.choice(list(own))
        assert [version.text for version in memory.history(id).history] == own[id]
    else:
        start = memory_id(rng.choice(shared))
        current = memory.history(start).history[-1].id
        text = fresh("shared fact")
        try:
            won.append([current, insist(memory.supersede, current, text).id])
        except OperationFailedError as error:
            assert "was superseded by" in error.message, error.message
memory.close()
json.dump({"own": list(own.values()), "forgotten": forgotten, "won": won, "done": done, "refused": refused}, sys.stdout)
"""


def run_workers(folder: Path, count: int, seconds: int, seed: str) -> list[dict[str, Any]]:
    """Let processes work at once and return what each of them knows must be true."""
    processes: list[subprocess.Popen[bytes]] = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(folder), f"worker{number}", str(seconds), seed, *SHARED],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for number in range(count)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        with ThreadPoolExecutor(count) as threads:
            answers = list(threads.map(_communicate, processes))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [errors.decode() for _, errors in answers if b"Traceback" in errors] == []
    return [json.loads(output) for output, _ in answers]


def _communicate(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    return process.communicate(b"go\n")


def test_processes_that_do_everything_at_once_lose_nothing(
    folder: Path, rng: random.Random, figures: Counter[str], sized: Callable[[int, int], int]
) -> None:
    memory = open_memory(folder)
    for text in SHARED:
        memory.remember(text)

    known = run_workers(folder, sized(12, 64), sized(3, 20), str(rng.getrandbits(32)))

    poll(memory.finish_erasures)
    versions = check_files(folder)
    kept = [text for one in known for chain in one["own"] for text in chain]
    won = {old: new for one in known for old, new in one["won"]}
    assert len(won) == sum(len(one["won"]) for one in known), "a version was superseded twice"
    assert versions.keys() == {*map(memory_id, kept), *map(memory_id, SHARED), *won.values()}
    for chain in (chain for one in known for chain in one["own"]):
        assert [version.text for version in memory.history(memory_id(chain[0])).history] == chain
    for text in SHARED:
        chain = [version.id for version in memory.history(memory_id(text)).history]
        assert [won.get(id) for id in chain] == [*chain[1:], None]
    forgotten = [text for one in known for text in one["forgotten"]]
    assert not pieces_in_files(folder, [text.partition(" number ")[2].encode() for text in forgotten])
    memory.close()
    done, refused = (sum(one[name] for one in known) for name in ("done", "refused"))
    assert refused * 100 <= done, "more than one operation in a hundred was refused because of the lock"
    figures["operations of processes at once"] += done
    figures["operations of processes at once refused clearly, then repeated"] += refused
    figures["acknowledged writes of processes at once found again"] += len(versions)
    figures["texts forgotten by processes at once"] += len(forgotten)


class Server:
    """A real server over stdio, asked for tools."""

    def __init__(self, client: LineClient) -> None:
        self._client = client
        client.initialize()

    def ask(self, tool: str, **arguments: object) -> Any:
        return structured(self._client.ask(call(tool, arguments)))

    def recalled(self, query: str) -> list[str]:
        return [hit["text"] for hit in self.ask("recall", query=query)["hits"]]


def structured(message: dict[str, Any]) -> Any:
    return message["result"]["structuredContent"]


def test_two_servers_with_warm_caches_see_each_others_changes_at_the_next_recall(
    tmp_path: Path, figures: Counter[str], sized: Callable[[int, int], int]
) -> None:
    with line_client(tmp_path) as one_client, line_client(tmp_path) as other_client:
        one, other = Server(one_client), Server(other_client)
        one.ask("remember", text="the quay is long")
        one.ask("remember", text="the crane is tall")
        for server in (one, other):
            assert server.recalled("quay") == ["the quay is long"]
        for number in range(sized(10, 500)):
            old, new = f"winch {number} pulls", f"winch {number} is broken"
            id = one.ask("remember", text=old)["id"]
            assert other.recalled("winch") == [old]
            assert one.recalled("winch") == [old]
            new_id = other.ask("supersede", id=id, text=new)["id"]
            assert one.recalled("winch") == [new]
            assert other.recalled("winch") == [new]
            assert one.ask("forget", id=new_id) == {"forgotten": True}
            assert other.recalled("winch") == []
            assert other.ask("forget", id=id) == {"forgotten": True}
            assert one.ask("history", id=id)["error"] == "cave_history_failed"
            one, other = other, one
            figures["changes seen by another server at its next recall"] += 3


class Asked(NamedTuple):
    """An operation of a burst, with what it answered."""

    tool: str
    arguments: tuple[str, ...]
    answered: Outcome


def is_serial(asked: Sequence[Asked], begin: Reference, end: frozenset[Version]) -> bool:
    """Return whether some order of the operations gives exactly these answers and leaves exactly these versions."""
    seen: set[tuple[frozenset[int], frozenset[Version]]] = set()

    def can_finish(left: frozenset[int], reference: Reference) -> bool:
        if not left:
            return reference.state() == end
        if (left, reference.state()) in seen:
            return False
        seen.add((left, reference.state()))
        for number in left:
            tried = reference.copy()
            tool, arguments, answered = asked[number]
            if tool == "recall":
                given: Outcome = ("recalled", *sorted(tried.current()))
            else:
                given = getattr(tried, tool)(*arguments)
            if given == answered and can_finish(left - {number}, tried):
                return True
        return False

    return can_finish(frozenset(range(len(asked))), begin)


def burst(rng: random.Random, group: str) -> list[tuple[str, dict[str, str]]]:
    """Return calls about one fact, each of which another one may make succeed or fail."""
    texts = [f"{group} version{number}" for number in range(4)]
    ids = [memory_id(text) for text in texts]
    calls: list[tuple[str, dict[str, str]]] = [
        ("remember", {"text": texts[0]}),
        ("supersede", {"id": ids[0], "text": texts[1]}),
        ("supersede", {"id": ids[0], "text": texts[2]}),
        ("supersede", {"id": ids[1], "text": texts[3]}),
        ("forget", {"id": ids[0]}),
        ("forget", {"id": ids[rng.randrange(1, 4)]}),
        ("remember", {"text": texts[rng.randrange(4)]}),
        ("history", {"id": ids[rng.randrange(4)]}),
        ("recover", {"handle": recovery_handle(texts[rng.randrange(4)])}),
        ("recall", {"query": group}),
    ]
    rng.shuffle(calls)
    return calls


def answered(tool: str, answer: Any) -> Outcome:
    if tool == "recall":
        return ("recalled", *sorted(hit["id"] for hit in answer["hits"]))
    return outcome(answer)


def test_a_burst_of_calls_in_one_session_equals_some_serial_order(
    tmp_path: Path, rng: random.Random, figures: Counter[str], sized: Callable[[int, int], int]
) -> None:
    with line_client(tmp_path) as client:
        Server(client).ask("remember", text="what else there is")
        for round in range(sized(4, 200)):
            # A fact's calls concern no other fact's versions: all are serial if those of each fact are.
            groups = [f"berth{round}x{number}" for number in range(5)]
            calls = [(group, *one) for group in groups for one in burst(rng, group)]
            rng.shuffle(calls)
            client.send(*(call(tool, values, id=number) for number, (_, tool, values) in enumerate(calls)))
            answers: dict[int, Any] = {}
            for _ in calls:
                message = client.receive()
                answers[message["id"]] = structured(message)
            stored = check_files(tmp_path / "mem")
            for group in groups:
                asked = [
                    Asked(tool, tuple(values.values()), answered(tool, answers[number]))
                    for number, (about, tool, values) in enumerate(calls)
                    if about == group
                ]
                end = frozenset(version for version in stored.values() if version.text.startswith(f"{group} "))
                assert is_serial(asked, Reference(), end), asked
            figures["calls of a burst found to be serial"] += len(calls)


def test_what_no_order_explains_is_not_called_serial() -> None:
    quay = Version(id=memory_id("quay"), text="quay")
    remembered = Asked("remember", ("quay",), ("remembered", quay.id))
    forgotten = Asked("forget", (quay.id,), answered("forget", {"forgotten": True}))
    assert is_serial([forgotten, remembered], Reference(), frozenset())
    assert not is_serial([forgotten, remembered], Reference(), frozenset([quay]))
    assert not is_serial([forgotten, forgotten, remembered], Reference(), frozenset())
    assert is_serial([forgotten, forgotten, remembered, remembered], Reference(), frozenset())


def test_a_process_stopped_while_it_writes_makes_others_wait_fail_clearly_and_recover(
    tmp_path: Path, figures: Counter[str], sized: Callable[[int, int], int]
) -> None:
    folder = tmp_path / "mem"
    with OtherProcess() as holder, line_client(tmp_path) as client:
        server = Server(client)
        quay = server.ask("remember", text="the quay is long")["id"]
        server.ask("remember", text="the crane is tall")
        holder.call("open", folder)
        holder.begin_writing("written by who was stopped")
        holder.stop()

        for _ in range(sized(1, 4)):  # each lasts the 5 s that a write waits
            writes = [
                ("remember", {"text": "not now"}),
                ("supersede", {"id": quay, "text": "the quay is short"}),
                ("forget", {"id": quay}),
            ]
            client.send(*(call(tool, values, id=tool) for tool, values in writes))
            refused = dict[str, Any]()
            while len(refused) < len(writes):
                client.send(call("recall", {"query": "quay"}, id="recall"), call("history", {"id": quay}, id="history"))
                reads = 0
                while reads < 2:
                    message = client.receive()
                    if message["id"] in ("recall", "history"):
                        reads += 1
                        assert "error" not in structured(message)
                        assert structured(message).get("hits", [{"id": quay}])[0]["id"] == quay
                        figures["reads answered while a stopped process held the store"] += 1
                    else:
                        refused[message["id"]] = structured(message)
            for tool, _ in writes:
                assert refused[tool]["error"] == f"cave_{tool}_failed"
                assert "another program holds the store" in refused[tool]["message"]
                figures["writes refused clearly while a stopped process held the store"] += 1

        client.send(call("remember", {"text": "waits and succeeds"}, id="waiting"))
        holder.go_on()
        assert holder.end()["id"] == memory_id("written by who was stopped")
        assert structured(client.receive())["id"] == memory_id("waits and succeeds")
        assert server.ask("forget", id=quay) == {"forgotten": True}
        assert server.recalled("stopped") == ["written by who was stopped"]
    assert {version.text for version in check_files(folder).values()} == {
        "the crane is tall",
        "written by who was stopped",
        "waits and succeeds",
    }
