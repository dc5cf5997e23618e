"""A disk that notes what SQLite writes to it, and what of that a loss of power could leave.

Between two syncs of a file nothing is certain: each write may have reached the disk, or not, or in part, in any order.
Names that came or went since the folder was synced are as uncertain, in their order. What was synced stays.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import apsw

_SECTOR_BYTES = 512
_NEW_JOURNALS = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL


class Event(NamedTuple):
    """What happened: open, write, truncate, sync, unlink, sync folder, or what a test marks."""

    what: str
    path: str
    at: int = 0
    data: bytes = b""


class RecordingDisk:
    """Notes every change of every database that is opened through SQLite's default VFS while this is entered."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def mark(self, what: str) -> None:
        """Note something between the events of the disk."""
        self.events.append(Event("mark", what))

    def __enter__(self) -> Self:
        events = self.events

        class File(apsw.VFSFile):
            def __init__(self, name: Any, flags: list[int]) -> None:
                super().__init__("unix", name, flags)
                self._path = str(name.filename() if isinstance(name, apsw.URIFilename) else name)
                wanted = flags[0]
                self._syncs_folder = bool(wanted & apsw.SQLITE_OPEN_CREATE and wanted & _NEW_JOURNALS)
                # What is in a new file already was synced before it got its name: new databases are put there whole.
                events.append(Event("open", self._path, data=bytes(self.xRead(self.xFileSize(), 0))))

            def xWrite(self, data: Any, offset: int) -> None:
                events.append(Event("write", self._path, offset, bytes(data)))
                super().xWrite(data, offset)

            def xTruncate(self, newsize: int) -> None:
                events.append(Event("truncate", self._path, newsize))
                super().xTruncate(newsize)

            def xSync(self, flags: int) -> None:
                super().xSync(flags)
                events.append(Event("sync", self._path))
                if self._syncs_folder:  # as the VFS below does at the first sync of a new log or journal
                    events.append(Event("sync folder", str(Path(self._path).parent)))
                    self._syncs_folder = False

        class Disk(apsw.VFS):
            def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
                return File(name, flags)

            def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: FBT001 apsw's signature
                super().xDelete(filename, syncdir)
                events.append(Event("unlink", filename))
                if syncdir:
                    events.append(Event("sync folder", str(Path(filename).parent)))

        self._vfs = Disk("recording", "unix", makedefault=True)
        return self

    def __exit__(self, *_: object) -> None:
        apsw.set_default_vfs("unix")
        self._vfs.unregister()


@dataclass
class _Content:
    """What a file holds for certain, and the changes since its last sync."""

    certain: bytearray = field(default_factory=bytearray)
    uncertain: list[Event] = field(default_factory=list[Event])


class Platter:
    """The disk as far as a loss of power at some event can know it."""

    def __init__(self, files: Mapping[str, bytes] | None = None) -> None:
        """Begin with files, by path, that are on the disk for certain."""
        self._names = {path: _Content(bytearray(content)) for path, content in (files or {}).items()}
        self._certain_names = dict(self._names)
        self._uncertain_names: list[tuple[str, _Content | None]] = []

    def apply(self, event: Event) -> None:
        """Let an event happen."""
        if event.what in ("write", "truncate"):
            self._names[event.path].uncertain.append(event)
        elif event.what == "sync":
            content = self._names[event.path]
            for change in content.uncertain:
                _apply(content.certain, change)
            content.uncertain.clear()
        elif event.what == "open" and event.path not in self._names:
            self._rename(event.path, _Content(bytearray(event.data)))
        elif event.what == "unlink":
            self._rename(event.path, None)
        elif event.what == "sync folder":
            for path, content in self._uncertain_names:
                _bind(self._certain_names, path, content)
            self._uncertain_names.clear()

    def _rename(self, path: str, content: _Content | None) -> None:
        _bind(self._names, path, content)
        self._uncertain_names.append((path, content))

    def after_power_loss(self, rng: random.Random) -> dict[str, bytes]:
        """Return files, by path, that the loss could leave."""
        names = dict(self._certain_names)
        for path, content in self._uncertain_names[: rng.randint(0, len(self._uncertain_names))]:
            _bind(names, path, content)
        survives = rng.choice((0.0, 0.5, 0.9, 1.0))  # how likely a write since the last sync is whole
        tears = rng.random() < 0.5
        images: dict[str, bytes] = {}
        for path, content in names.items():
            image = bytearray(content.certain)
            for change in content.uncertain:
                if rng.random() < survives:
                    _apply(image, change)
                elif tears and change.what == "write":
                    _apply(image, _torn(change, rng))
            images[path] = bytes(image)
        return images


def _bind(names: dict[str, _Content], path: str, content: _Content | None) -> None:
    if content is None:
        names.pop(path, None)
    else:
        names[path] = content


def _apply(content: bytearray, change: Event) -> None:
    if change.what == "truncate":
        del content[change.at :]
        return
    content.extend(bytes(max(0, change.at - len(content))))
    content[change.at : change.at + len(change.data)] = change.data


def _torn(write: Event, rng: random.Random) -> Event:
    """Return the part of a write before or after some border of a sector."""
    borders = range(write.at - write.at % _SECTOR_BYTES + _SECTOR_BYTES, write.at + len(write.data), _SECTOR_BYTES)
    cut = (rng.choice(borders) if borders else write.at) - write.at
    if rng.random() < 0.5:
        return write._replace(data=write.data[:cut])
    return write._replace(at=write.at + cut, data=write.data[cut:])
