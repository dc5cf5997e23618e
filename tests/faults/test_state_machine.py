"""Any operations, through any process, beside another program, give what a dictionary gives, and the files agree."""

import random
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cavemem_mcp import open_memory, tokens
from cavemem_mcp.errors import CaveError
from cavemem_mcp.model import MEMORY_BYTES_MAX, SCORE_THRESHOLD, memory_id, recovery_handle
from tests import bm25_oracle
from tests.faults.inspection import check_files
from tests.faults.other_process import OtherProcess
from tests.faults.reference import Reference, outcome
from tests.store.foreign import ForeignProgram

WORDS = ["quay", "crane", "winch", "berth", "港口", "港", "ท่าเรือ", "naïve", "2026", "the"]
RECORDS = "[" + ", ".join(f'{{"berth": {number % 5}, "quay": "crane {number}"}}' for number in range(50)) + "]"
LINES = "\n".join(f"{number:03} the winch at berth {number % 7} was greased" for number in range(90))
short_texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
long_texts = st.tuples(st.sampled_from([RECORDS, LINES]), st.sampled_from(WORDS)).map("\n".join)
texts = st.one_of(short_texts, short_texts, long_texts)
refused_texts = st.sampled_from(["", " \n", "x" * (MEMORY_BYTES_MAX + 1)])
queries = st.lists(st.sampled_from([*WORDS, "absent"]), max_size=4).map(" ".join)
sides = st.integers(0, 2)
picks = st.integers(0, 2**16)

NOW = "2026-01-01T00:00:00.000000000Z"
INSERT = "INSERT INTO memories(id, text, created_at, valid_from, supersedes) VALUES (?, ?, ?, ?, ?)"

Call = Callable[..., Any]


class Machine(RuleBasedStateMachine):
    """Two memories in this process and one in another, on one folder, and a program that knows no index."""

    another: OtherProcess
    figures: Counter[str]

    @initialize()
    def begin(self) -> None:
        self._scratch = tempfile.TemporaryDirectory()
        self.folder = Path(self._scratch.name) / "mem"
        self.here = [open_memory(self.folder), open_memory(self.folder)]
        assert self.another.call("open", self.folder) is None
        self.foreign = ForeignProgram(self.folder / "mem.db")
        self.reference = Reference()
        self.steps = 0
        self.known = [memory_id("never stored")]
        self.created: dict[str, str] = {}
        self.handles = {recovery_handle("never stored"): "never stored"}
        for side, text in enumerate([f"{RECORDS}\nquay", f"{LINES}\n2026", "quay crane"]):
            self.remember(side, text)

    def teardown(self) -> None:
        if not hasattr(self, "foreign"):
            return
        self.foreign.close()
        self.another.call("close")
        for memory in self.here:
            memory.close()
        self._scratch.cleanup()

    @rule(side=sides, text=texts)
    def remember(self, side: int, text: str) -> None:
        answer = self._check(side, "remember", text)
        if "id" in answer:
            self._note_created(answer["id"], answer["created_at"])

    @rule(side=sides, pick=picks, text=texts)
    def supersede(self, side: int, pick: int, text: str) -> None:
        id = self._any_id(pick)
        answer = self._check(side, "supersede", id, text)
        if "id" in answer:
            self._note_created(answer["id"], answer["created_at"])
        elif id in self.reference.versions and not self.reference.versions[id].is_current:
            end = self.reference.end_of_chain(id)
            assert not end.is_current or end.id in answer["message"]

    @rule(side=sides, pick=picks, text=refused_texts)
    def store_what_is_refused(self, side: int, pick: int, text: str) -> None:
        self._check(side, "remember", text)
        self._check(side, "supersede", self._any_id(pick), text)

    @rule(side=sides, pick=picks)
    def history(self, side: int, pick: int) -> None:
        for version in self._check(side, "history", self._any_id(pick)).get("history", ()):
            assert version["created_at"] == version["valid_from"] == self.created[version["id"]]

    @rule(side=sides, pick=picks)
    def forget(self, side: int, pick: int) -> None:
        id = self._any_id(pick)
        self._check(side, "forget", id)
        self.created.pop(id, None)

    @rule(side=sides, pick=picks)
    def recover(self, side: int, pick: int) -> None:
        self._check(side, "recover", sorted(self.handles)[pick % len(self.handles)])

    @rule(side=sides, query=queries, limit=st.sampled_from([1, 3, 1000]), budget=st.sampled_from([None, 5, 60, 2000]))
    def recall(self, side: int, query: str, limit: int, budget: int | None) -> None:
        answer = self._call(side, "recall", query, limit=limit, token_budget=budget)
        ranking = bm25_oracle.rank(self.reference.current(), query, limit=limit, threshold=SCORE_THRESHOLD)
        hits = answer["hits"]
        taken = [(hit["id"], hit["score"]) for hit in hits]
        left_out = [scored for scored in ranking.best if tuple(scored) not in taken]
        assert taken == [tuple(scored) for scored in ranking.best if scored not in left_out]
        assert answer.get("more", False) == ranking.more
        assert answer.get("omitted", 0) == len(left_out)
        if budget is None:
            assert not left_out
        else:
            assert sum(hit["tokens_added"] for hit in hits) <= budget
            assert hits or not ranking.best
        for hit in hits:
            self._check_hit(hit)

    @rule(text=texts)
    def foreign_remember(self, text: str) -> None:
        if memory_id(text) not in self.reference.versions:
            self.foreign.run(INSERT, memory_id(text), text, NOW, NOW, None)
            self.reference.remember(text)
            self._note_created(memory_id(text), NOW)

    @precondition(lambda self: self.reference.current())
    @rule(pick=picks, text=texts)
    def foreign_supersede(self, pick: int, text: str) -> None:
        ids = sorted(self.reference.current())
        id, new = ids[pick % len(ids)], memory_id(text)
        if new not in self.reference.versions:
            self.foreign.run("BEGIN IMMEDIATE")
            self.foreign.run("UPDATE memories SET valid_until = ?, superseded_by = ? WHERE id = ?", NOW, new, id)
            self.foreign.run(INSERT, new, text, NOW, NOW, id)
            self.foreign.run("COMMIT")
            self.reference.supersede(id, text)
            self._note_created(new, NOW)

    @precondition(lambda self: self.reference.versions)
    @rule(pick=picks)
    def foreign_forget(self, pick: int) -> None:
        ids = sorted(self.reference.versions)
        id = ids[pick % len(ids)]
        gone = self.reference.versions[id]
        self.foreign.run("BEGIN IMMEDIATE")
        self.foreign.run("DELETE FROM memories WHERE id = ?", id)
        self.foreign.run("UPDATE memories SET supersedes = ? WHERE supersedes = ?", gone.supersedes, id)
        self.foreign.run("UPDATE memories SET superseded_by = ? WHERE superseded_by = ?", gone.superseded_by, id)
        self.foreign.run("COMMIT")
        self.reference.forget(id)
        del self.created[id]

    @rule(side=st.integers(0, 1))
    def reopen(self, side: int) -> None:
        self.here[side].close()
        self.here[side] = open_memory(self.folder)

    @invariant()
    def the_files_agree(self) -> None:
        if hasattr(self, "reference"):
            assert frozenset(check_files(self.folder).values()) == self.reference.state()
            self.figures["states of a store compared with the model"] += 1

    @invariant()
    def every_process_recalls_what_is_current(self) -> None:
        if hasattr(self, "reference"):
            self.steps += 1
            self.recall(self.steps % 3, " ".join(WORDS[self.steps % 4 :]), 3, None if self.steps % 5 else 60)

    @invariant()
    def every_handle_recovers_or_its_memory_was_forgotten(self) -> None:
        if hasattr(self, "reference"):
            for handle, text in self.handles.items():
                expected = ("recovered", text) if memory_id(text) in self.reference.versions else "cave_recover_failed"
                assert outcome(self._call(0, "recover", handle)) == expected
                self.figures["handles of hits recovered, or refused after a forget"] += 1

    def _call(self, side: int, operation: str, *values: object, **options: object) -> Any:
        self.figures["operations compared with the model"] += 1
        if side == 2:
            return self.another.call(operation, *values, **options)
        try:
            return getattr(self.here[side], operation)(*values, **options).as_json()
        except CaveError as error:
            return error.as_json()

    def _check(self, side: int, operation: str, *values: str) -> Any:
        answer = self._call(side, operation, *values)
        assert outcome(answer) == getattr(self.reference, operation)(*values)
        return answer

    def _check_hit(self, hit: dict[str, Any]) -> None:
        text = self.reference.versions[hit["id"]].text
        assert hit["tokens_added"] == tokens.count(hit["text"])
        if "recovery_handle" not in hit:
            assert hit["text"] == text
            return
        assert hit["recovery_handle"] == recovery_handle(text)
        self.handles[hit["recovery_handle"]] = text

    def _any_id(self, pick: int) -> str:
        return self.known[pick % len(self.known)]

    def _note_created(self, id: str, created_at: str) -> None:
        if id not in self.known:
            self.known.append(id)
        assert self.created.setdefault(id, created_at) == created_at


def test_the_operations_of_several_processes_are_those_of_a_dictionary(
    sized: Callable[[int, int], int], rng: random.Random, figures: Counter[str]
) -> None:
    with OtherProcess() as process:

        class Seeded(Machine):
            another = process

        Seeded.figures = figures
        hypothesis.seed(rng.getrandbits(32))(Seeded)
        run_state_machine_as_test(
            Seeded,
            settings=settings(
                max_examples=sized(12, 1500),
                stateful_step_count=sized(30, 60),
                deadline=None,
                derandomize=False,
                database=None,
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
            ),
        )
