"""Follow the versions of a memory from one to the next. Knows what a sound chain is, not what is done with it."""

from collections import deque
from typing import Final

from cavemem_mcp.errors import OperationFailedError
from cavemem_mcp.model import Memory
from cavemem_mcp.store import Snapshot, Transaction

CHAIN_LENGTH_MAX: Final = 1_000_000
"""Versions that history follows before it calls a chain cyclic."""


def current_of(transaction: Transaction, memory: Memory) -> Memory | None:
    """Return the current version at the end of a version's chain, or None where the chain ends without one."""
    seen = {memory.id}
    while not memory.is_current:
        if memory.superseded_by is None or memory.superseded_by in seen:
            return None
        following = transaction.memory(memory.superseded_by)
        if following is None:
            return None
        seen.add(following.id)
        memory = following
    return memory


def chain_of(snapshot: Snapshot, id: str) -> deque[Memory]:
    """Return the whole chain of any of its versions, oldest first, or raise for one that is broken or cyclic."""
    start = snapshot.memory(id)
    if start is None:
        raise OperationFailedError("history", "no memory has this id; recall to find one")
    chain = deque([start])
    seen = {start.id}
    while (earlier := chain[0].supersedes) is not None:
        chain.appendleft(_linked(snapshot, earlier, seen, later=chain[0].id, earlier=earlier))
    while (later := chain[-1].superseded_by) is not None:
        chain.append(_linked(snapshot, later, seen, later=later, earlier=chain[-1].id))
    return chain


def _linked(snapshot: Snapshot, id: str, seen: set[str], *, later: str, earlier: str) -> Memory:
    """Return the neighbour `id`, which must exist, be new, and agree on the link between `earlier` and `later`."""
    memory = snapshot.memory(id)
    if memory is None:
        raise OperationFailedError("history", f"the chain is broken: {id} is missing; nothing partial is returned")
    if id in seen or len(seen) >= CHAIN_LENGTH_MAX:
        raise OperationFailedError("history", f"the chain is cyclic at {id}; nothing partial is returned")
    link_back = memory.superseded_by if id == earlier else memory.supersedes
    if link_back != (later if id == earlier else earlier):
        raise OperationFailedError(
            "history",
            f"the chain is broken: {earlier} and {later} do not point at each other; nothing partial is returned",
        )
    seen.add(id)
    return memory
