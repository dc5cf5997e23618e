"""What the six operations mean, over a dictionary, without files: what every store must equal."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cavemem_mcp.model import MEMORY_BYTES_MAX, memory_id, memory_id_of_handle, recovery_handle

Json = Mapping[str, Any]
Outcome = str | bool | tuple[object, ...]
"""What of an answer is determined by the operations before it: an error's id, or the content without times."""


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version of a fact."""

    id: str
    text: str
    supersedes: str | None = None
    superseded_by: str | None = None
    is_current: bool = True


@dataclass
class Reference:
    """The versions there are, by id."""

    versions: dict[str, Version] = field(default_factory=dict[str, Version])

    def copy(self) -> "Reference":
        return Reference(copy.copy(self.versions))

    def current(self) -> dict[str, str]:
        return {id: version.text for id, version in self.versions.items() if version.is_current}

    def state(self) -> frozenset[Version]:
        return frozenset(self.versions.values())

    def remember(self, text: str) -> Outcome:
        if refused := _refused(text):
            return refused
        id = memory_id(text)
        if id in self.versions and not self.versions[id].is_current:
            return "cave_remember_failed"
        self.versions.setdefault(id, Version(id=id, text=text))
        return ("remembered", id)

    def supersede(self, id: str, text: str) -> Outcome:
        if refused := _refused(text):
            return refused
        new = memory_id(text)
        if id not in self.versions or not self.versions[id].is_current or new in self.versions:
            return "cave_supersede_failed"
        self._change(id, is_current=False, superseded_by=new)
        self.versions[new] = Version(id=new, text=text, supersedes=id)
        return ("superseded", id, new)

    def history(self, id: str) -> Outcome:
        if id not in self.versions:
            return "cave_history_failed"
        return ("history", *self._chain(id))

    def forget(self, id: str) -> Outcome:
        gone = self.versions.pop(id, None)
        if gone is None:
            return False
        if gone.supersedes is not None:
            self._change(gone.supersedes, superseded_by=gone.superseded_by)
        if gone.superseded_by is not None:
            self._change(gone.superseded_by, supersedes=gone.supersedes)
        return True

    def recover(self, handle: str) -> Outcome:
        version = self.versions.get(memory_id_of_handle(handle))
        if version is None or recovery_handle(version.text) != handle:
            return "cave_recover_failed"
        return ("recovered", version.text)

    def end_of_chain(self, id: str) -> Version:
        """Return the newest version of a chain, which need not be current."""
        return list(self._chain(id))[-1]

    def _chain(self, id: str) -> Iterator[Version]:
        version = self.versions[id]
        while version.supersedes is not None:
            version = self.versions[version.supersedes]
        yield version
        while version.superseded_by is not None:
            version = self.versions[version.superseded_by]
            yield version

    def _change(self, id: str, **changes: Any) -> None:
        self.versions[id] = Version(**{**vars(self.versions[id]), **changes})


def outcome(answer: Json) -> Outcome:
    """Return the determined part of the JSON that an operation other than recall answered."""
    match answer:
        case {"error": error}:
            return str(error)
        case {"forgotten": forgotten}:
            return bool(forgotten)
        case {"id": id, "supersedes": supersedes}:
            return ("superseded", supersedes, id)
        case {"id": id}:
            return ("remembered", id)
        case {"history": versions}:
            return ("history", *map(_version, versions))
        case {"handle": _, "text": text}:
            return ("recovered", text)
        case _:
            raise AssertionError(f"no operation answers {answer}")


def _version(stored: Json) -> Version:
    links = {name: stored.get(name) for name in ("supersedes", "superseded_by")}
    return Version(id=stored["id"], text=stored["text"], is_current="valid_until" not in stored, **links)


def _refused(text: str) -> Outcome | None:
    if not text.strip():
        return "cave_invalid_arguments"
    return "cave_memory_too_large" if len(text.encode()) > MEMORY_BYTES_MAX else None
