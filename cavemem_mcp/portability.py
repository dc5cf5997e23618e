"""Move memories: export and import of whole chains with their times, and backups while others go on."""

import os
import tarfile
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final

from cavemem_mcp.chains import chain_of
from cavemem_mcp.errors import OperationFailedError, StoreError
from cavemem_mcp.formats import Chain, Skipped, as_line, read
from cavemem_mcp.model import Memory
from cavemem_mcp.service import Cavemem
from cavemem_mcp.store import Snapshot, Store, Transaction

BATCH_MEMORIES: Final = 2000
"""About how many memories one transaction of an import holds; other writers wait for it."""
BATCH_CHARACTERS: Final = 4 * 1024 * 1024
"""About how much text it holds."""

Progress = Callable[[int], object]
"""Takes how many memories are done."""


@dataclass(kw_only=True)
class Exported:
    """What an export wrote: memories (versions), chains, and how many versions were loose ends of broken chains."""

    memories: int = 0
    chains: int = 0
    broken: int = 0


@dataclass(kw_only=True)
class Imported:
    """What an import did: memories and chains it added, chains that were there already, and what it skipped."""

    memories: int = 0
    chains: int = 0
    present: int = 0
    skipped: list[Skipped] = field(default_factory=list[Skipped])


def export(memory: Cavemem, write: Callable[[bytes], object], progress: Progress) -> Exported:
    """Write every chain of a memory, as it is at one moment, as a line of `formats`; newest first.

    The versions of a broken chain, which another program left, become lines of their own.

    Raises:
        StoreError: The store cannot be read; says what to do.
    """
    exported = Exported()
    with memory.store.read() as snapshot:
        for versions in _chains(snapshot, exported):
            write(as_line(versions))
            exported.chains += 1
            exported.memories += len(versions)
            progress(exported.memories)
    return exported


def import_(memory: Cavemem, stream: BinaryIO, now_ns: int, progress: Progress) -> Imported:
    """Add what a file of any format of `formats` holds; a second time changes nothing.

    A chain is added whole or not at all. Where a chain goes on from one that is stored, its later versions are added;
    where it contradicts the store, it is skipped, and the store stays as it is.

    Args:
        memory: Where to add.
        stream: The file.
        now_ns: When memories without a time of their own count as stored, in nanoseconds since 1970.
        progress: Called now and then.

    Raises:
        StoreError: The store cannot be written; says what was done and what to do.
    """
    imported = Imported()
    batch: list[Chain] = []
    memories = characters = 0
    for found in chain(read(stream, now_ns), [None]):
        if isinstance(found, Skipped):
            imported.skipped.append(found)
        elif found:
            batch.append(found)
            memories += len(found.memories)
            characters += sum(len(version.text) for version in found.memories)
        if batch and (found is None or memories >= BATCH_MEMORIES or characters >= BATCH_CHARACTERS):
            _write(memory.store, batch, imported)
            progress(imported.memories)
            batch, memories, characters = [], 0, 0
    imported.skipped.sort()
    return imported


def backup(memory: Cavemem, file: Path) -> int:
    """Write both of a memory's files, as they are now, to a new tar archive; others may go on using them.

    Unpacked (`tar -xf`) into an empty folder, the archive is a home: set CAVEMAN_HOME to that folder. The memories are
    copied before the originals, so that the copy has the original of no memory that was forgotten before it.

    Returns:
        The archive's size in bytes.

    Raises:
        StoreError: A file cannot be read or written; says what to do.
    """
    with (
        new_file(file) as stream,
        tempfile.TemporaryDirectory(prefix=".cavemem-", dir=file.absolute().parent) as folder,
    ):
        copies = Path(folder)
        memory.store.backup(copies / "mem.db")
        memory.recovery.backup(copies / "ccr.db")
        with tarfile.open(fileobj=stream, mode="w") as archive:
            archive.add(copies, "mem", filter=_private)
        return stream.tell()


@contextmanager
def new_file(path: Path) -> Generator[BinaryIO]:
    """Open a new private file that appears under its name whole, when the block ends, or not at all.

    Raises:
        StoreError: The name is taken, or the file cannot be written.
    """
    part = Path(f"{path}.part")
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))  # takes the name
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; nothing was written: give another name") from error
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    except BaseException as error:
        for unfinished in (part, path):
            with suppress(OSError):
                unfinished.unlink()
        if isinstance(error, OSError):
            raise StoreError(f"{path}: {error.strerror}; nothing was written") from error
        raise


def _private(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mode = 0o700 if entry.isdir() else 0o600
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _chains(snapshot: Snapshot, exported: Exported) -> Iterator[tuple[Memory, ...]]:
    """Yield every chain once; count what is broken."""
    seen: set[str] = set()
    for memory in snapshot.memories():
        if memory.supersedes is None and memory.superseded_by is None:
            yield (memory,)
        elif memory.id not in seen:
            try:
                versions = tuple(chain_of(snapshot, memory.id))
            except OperationFailedError:
                exported.broken += 1
                versions = (_alone(memory),)
            seen.update(version.id for version in versions)
            yield versions


def _alone(memory: Memory) -> Memory:
    fields = memory.as_json() | {"supersedes": None, "superseded_by": None}
    return Memory(**fields)  # pyright: ignore[reportArgumentType] - the fields of a memory


def _write(store: Store, batch: list[Chain], imported: Imported) -> None:
    try:
        outcomes = store.write(lambda transaction: [_add(transaction, found.memories) for found in batch])
    except StoreError as error:
        raise StoreError(
            f"{error.message}; what stands before line {batch[0].line} of the file is imported: "
            "import it again for the rest"
        ) from error
    for found, outcome in zip(batch, outcomes, strict=True):
        if isinstance(outcome, str):
            imported.skipped.append(Skipped(found.line, outcome))
        elif outcome:
            imported.chains += 1
            imported.memories += outcome
        else:
            imported.present += 1


def _add(transaction: Transaction, versions: tuple[Memory, ...]) -> int | str:
    """Add what is missing of a chain; return how many versions that was, or why none was added."""
    stored = [transaction.memory(version.id) for version in versions]
    known = [memory for memory in stored if memory is not None]
    if any(memory is None for memory in stored[: len(known)]):
        return "the store has later versions of it, but not all earlier ones"
    for memory, version in zip(known, versions, strict=False):
        if memory.text != version.text:
            return f"{version.id} is taken by another text with the same hash prefix"
        if memory.supersedes != version.supersedes and len(versions) > 1:
            return f"{version.id} has another predecessor in the store"
    if known:
        last, version = known[-1], versions[len(known) - 1]
        if last.is_current and version.superseded_by is not None and version.valid_until is not None:
            transaction.expire(version.id, valid_until=version.valid_until, superseded_by=version.superseded_by)
        elif last.is_current and not version.is_current:
            return f"{version.id} is still current in the store"
        elif not last.is_current and (version.is_current or len(known) < len(versions)):
            return f"{version.id} has been superseded in the store, or its next version was forgotten there"
    for version in versions[len(known) :]:
        transaction.insert(version)
    return len(versions) - len(known)
