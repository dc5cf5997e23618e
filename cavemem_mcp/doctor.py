"""Look at a store from outside, whatever state it is in, and say what is wrong and what to do. Changes nothing.

No memory's text appears in what it says. It must run in a process that has not opened the store otherwise.
"""

import logging
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

from cavemem_mcp import recovery
from cavemem_mcp.errors import StoreError, origin_of
from cavemem_mcp.model import Json
from cavemem_mcp.store import diagnosis, files, processes, schema, scrub, sqlite, survey
from cavemem_mcp.store.files import Connection
from cavemem_mcp.store.reading import ChangedError, observing

SPACE_BYTES_MIN: Final = 64 * 1024 * 1024
"""Free space below which a store is soon full: about what the logs of two busy files take."""
LOG_BYTES_MAX: Final = 256 * 1024 * 1024
"""A log larger than this is not being moved into its file."""
SQLITE_MIN: Final = (3, 51, 3)
"""The first SQLite without a fault that damages files when two processes write."""
ATTEMPTS_MAX: Final = 3
"""How often a file is looked at that other programs change meanwhile."""
NAMED_MAX: Final = 5
IS_EFFECTIVE: Final = os.access in os.supports_effective_ids

Status = Literal["ok", "problem", "unknown"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What was looked at.
        status: Whether it is as it should be; `unknown` where that could not be seen.
        found: What was seen.
        advice: What to do about a problem.
    """

    name: str
    status: Status
    found: str
    advice: str = ""

    def as_json(self) -> Json:
        """Return the check as a JSON object; `advice` only where there is some."""
        shown: Json = {"name": self.name, "status": self.status, "found": self.found}
        return shown | {"advice": self.advice} if self.advice else shown


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that was looked at, in the order of what depends on what."""

    path: str
    checks: tuple[Check, ...]

    @property
    def is_healthy(self) -> bool:
        """Whether no check found a problem."""
        return all(check.status != "problem" for check in self.checks)

    def as_json(self) -> Json:
        """Return the report as a JSON object."""
        return {"healthy": self.is_healthy, "path": self.path, "checks": [check.as_json() for check in self.checks]}

    def as_text(self) -> str:
        """Return the report as lines for people, one a check."""
        lines = [
            f"{check.status:<9}{check.name:<11}{check.found}" + (f"; {check.advice}" if check.advice else "")
            for check in self.checks
        ]
        problems = sum(check.status == "problem" for check in self.checks)
        verdict = "healthy" if self.is_healthy else f"{problems} problem{'s' if problems > 1 else ''}"
        return "".join(f"{line}\n" for line in [f"{self.path}", *lines, verdict])


def examine(folder: Path) -> Report:
    """Look at the store in a folder; never raises, whatever is there."""
    folder = folder.absolute()
    memories, originals = folder / sqlite.FILE_NAME, folder / recovery.FILE_NAME
    checks = [
        _looked("folder", lambda: _folder(folder)),
        _looked("files", lambda: _files((memories, originals))),
        _looked("sqlite", _sqlite),
        *_memories_file(memories),
        *_originals_file(originals),
        _looked("log", lambda: _log((memories, originals))),
        _looked("space", lambda: _space(folder)),
        _looked("programs", lambda: _programs((memories, originals))),
    ]
    return Report(path=str(folder), checks=tuple(checks))


def rebuild_index(folder: Path) -> None:
    """Make the recall index anew from the memories, which stay as they are.

    Raises:
        StoreError: It cannot be done; says why, and nothing has changed.
    """
    diagnosis.rebuild_index(folder.absolute() / sqlite.FILE_NAME)


def _looked(name: str, look: Callable[[], Check]) -> Check:
    """Return what a look finds, whatever it meets."""
    try:
        return look()
    except Exception as error:
        return Check(name=name, status="unknown", found=_reason(error))


def _memories_file(path: Path) -> list[Check]:
    looks = {"integrity": partial(_integrity, path), "layout": _layout, "memories": _memories, "index": _index}
    if os.path.lexists(path):
        return _looked_into(path, looks)
    return [Check(name=name, status="unknown", found=f"there is no {path.name}") for name in looks]


def _originals_file(path: Path) -> list[Check]:
    if os.path.lexists(path):
        return _looked_into(path, {"originals": partial(_originals, path)})
    return [Check(name="originals", status="ok", found="none is kept")]


def _looked_into(path: Path, looks: Mapping[str, Callable[[Connection], Check]]) -> list[Check]:
    """Return what looks into one snapshot of a database find; those after one that failed are unknown."""
    found: list[Check] = []
    for _ in range(ATTEMPTS_MAX):
        found = []
        try:
            with files.store_errors(path), observing(path) as connection:
                found.extend(look(connection) for look in looks.values())
        except ChangedError as error:
            found = [Check(name=name, status="unknown", found=str(error)) for name in looks]
        except Exception as error:
            found = found[: len(looks) - 1]  # all have looked when it fails at the end
            name, *others = list(looks)[len(found) :]
            found.append(Check(name=name, status="problem", found=_reason(error)))
            return found + [Check(name=other, status="unknown", found=f"see {name}") for other in others]
        else:
            break
    return found


def _reason(error: Exception) -> str:
    if isinstance(error, StoreError):
        return error.message
    logger.warning("a check failed unexpectedly: %s", origin_of(error))
    return f"failed unexpectedly ({type(error).__name__}); the log says where"


def _folder(folder: Path) -> Check:
    if not os.path.lexists(folder):
        advice = "remember something, or set CAVEMAN_HOME to where the memories are"
        return Check(name="folder", status="problem", found="does not exist", advice=advice)
    if trouble := _trouble(folder, is_kind=stat.S_ISDIR, mode=0o700):
        return Check(name="folder", status="problem", found=trouble[0], advice=trouble[1])
    return Check(name="folder", status="ok", found="yours alone")


def _files(databases: Sequence[Path]) -> Check:
    names: list[str] = []
    for database in databases:
        beside = [path for part in ("wal", "shm", "journal") if os.path.lexists(path := Path(f"{database}-{part}"))]
        found = [database, *beside] if os.path.lexists(database) else beside
        names.extend(path.name for path in found)
        for path in found:
            if trouble := _trouble(path, is_kind=stat.S_ISREG, mode=0o600):
                return Check(name="files", status="problem", found=f"{path.name} {trouble[0]}", advice=trouble[1])
        if beside and database not in found:
            advice = f"restore a backup, or move {beside[0].name} away"
            return Check(name="files", status="problem", found=f"there is no {database.name}", advice=advice)
    if databases[0].name not in names:
        advice = "the first memory makes it; if there were some, restore a backup"
        return Check(name="files", status="problem", found=f"there is no {databases[0].name}", advice=advice)
    return Check(name="files", status="ok", found=f"{', '.join(names)}; yours alone")


def _trouble(path: Path, *, is_kind: Callable[[int], bool], mode: int) -> tuple[str, str] | None:
    """Return what is wrong with a path and what to do about it, or None."""
    kind = "folder" if mode == 0o700 else "file"
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return "is a symbolic link, which is refused", f"put the {kind} itself there"
    if not is_kind(status.st_mode):
        return f"is not a {kind}", "move it away"
    if status.st_uid != os.geteuid():
        return "belongs to another user, which is refused", f"take it over: chown {os.geteuid()}"
    if stat.S_IMODE(status.st_mode) & 0o077:
        return "may be used by other users", f"chmod {mode:o}; the next use does so too"
    if not os.access(path, os.R_OK, effective_ids=IS_EFFECTIVE):
        return "cannot be read", f"chmod {mode:o}"
    if not os.access(path, os.W_OK, effective_ids=IS_EFFECTIVE):
        return "cannot be written, so that only reading is sure to work", f"chmod {mode:o}, or mount its disk so"
    return None


def _sqlite() -> Check:
    version = diagnosis.sqlite_version()
    if tuple(map(int, version.split("."))) >= SQLITE_MIN:
        return Check(name="sqlite", status="ok", found=version)
    advice = "upgrade apsw, which brings SQLite"
    return Check(name="sqlite", status="problem", found=f"{version} can damage a shared file", advice=advice)


def _integrity(path: Path, connection: Connection) -> Check:
    if faults := diagnosis.damage(path, connection):
        advice = "save what cavemem export still reads, then restore a backup"
        return Check(name="integrity", status="problem", found=f"damaged: {'; '.join(faults)}", advice=advice)
    return Check(name="integrity", status="ok", found="every page is as it should be")


def _layout(connection: Connection) -> Check:
    files.refuse_foreign(connection, schema.LAYOUT)
    layout = connection.pragma("user_version")
    if layout < schema.LAYOUT:
        return Check(name="layout", status="ok", found=f"{layout}, an older one; the next use brings it up to date")
    return Check(name="layout", status="ok", found=f"{layout}")


def _memories(connection: Connection) -> Check:
    if connection.pragma("user_version") != schema.LAYOUT:
        return Check(name="memories", status="unknown", found="see layout")
    found = survey.statistics(connection)
    if altered := diagnosis.altered(connection):
        named = ", ".join(altered[:NAMED_MAX]) + (
            f" and {len(altered) - NAMED_MAX} more" if altered[NAMED_MAX:] else ""
        )
        advice = "their text is not the one remembered: restore it from a backup, or forget them"
        return Check(name="memories", status="problem", found=f"altered: {named}", advice=advice)
    if erasures := len(scrub.pending(connection)):
        advice = "start cavemem once while no other program reads"
        found = f"bytes of {erasures} forgotten memories are still in the files"
        return Check(name="memories", status="problem", found=found, advice=advice)
    return Check(name="memories", status="ok", found=f"{found.current:,} current, {found.expired:,} expired")


def _index(connection: Connection) -> Check:
    if connection.pragma("user_version") != schema.LAYOUT:
        return Check(name="index", status="unknown", found="see layout")
    index = diagnosis.diagnose_index(connection)
    if index.differences:
        advice = "run: cavemem doctor --rebuild-index"
        return Check(name="index", status="problem", found=f"wrong: {'; '.join(index.differences)}", advice=advice)
    waiting = f", {index.pending:,} of another program waiting" if index.pending else ""
    return Check(name="index", status="ok", found=f"{index.memories:,} memories{waiting}, as a fresh one")


def _originals(path: Path, connection: Connection) -> Check:
    files.refuse_foreign(connection, recovery.LAYOUT)
    if faults := diagnosis.damage(path, connection) or diagnosis.disorder(connection):
        advice = "move ccr.db away: what memories have, they still recover"
        return Check(name="originals", status="problem", found=f"damaged: {'; '.join(faults)}", advice=advice)
    if connection.pragma("user_version") == recovery.LAYOUT and (
        altered := files.altered(connection, recovery.OBJECTS)
    ):
        advice = "move ccr.db away: what memories have, they still recover"
        found = f"{', '.join(altered)} missing or altered"
        return Check(name="originals", status="problem", found=found, advice=advice)
    count, damaged = recovery.count(connection)
    if damaged:
        advice = "restore a backup of ccr.db, or move it away: what memories have, they still recover"
        return Check(name="originals", status="problem", found=f"{damaged:,} of {count:,} damaged", advice=advice)
    return Check(name="originals", status="ok", found=f"{count:,} of shortened hits")


def _log(databases: Sequence[Path]) -> Check:
    size = sum(files.log_bytes(database) for database in databases)
    if size > LOG_BYTES_MAX:
        advice = "a program reads without end; end one of those below"
        return Check(name="log", status="problem", found=f"{size:,} bytes wait", advice=advice)
    return Check(name="log", status="ok", found=f"{size:,} bytes")


def _space(folder: Path) -> Check:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    disk = os.statvfs(existing)
    free = disk.f_bavail * disk.f_frsize
    if free < SPACE_BYTES_MIN:
        return Check(name="space", status="problem", found=f"{free:,} bytes free", advice="free some space")
    return Check(name="space", status="ok", found=f"{free:,} bytes free")


def _programs(databases: Sequence[Path]) -> Check:
    users = [processes.users_of(database) for database in databases]
    found = {user.id: user for of_one in users if of_one for user in of_one}
    if None in users:
        return Check(name="programs", status="unknown", found="only Linux tells who has a file open")
    for user in found.values():
        if user.is_writing and user.is_stopped:
            advice = f"writers wait for it: kill -CONT {user.id}, or end it"
            held = f"{user.id} ({user.name}) is stopped and holds the write lock"
            return Check(name="programs", status="problem", found=held, advice=advice)
    described = [f"{user.id} ({user.name}{', writes now' if user.is_writing else ''})" for user in found.values()]
    return Check(name="programs", status="ok", found=", ".join(described) or "none has it open")
