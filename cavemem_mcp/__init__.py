"""Durable memory for AI agents: raw facts in a local SQLite file, recalled by exact BM25 inside a token budget.

The public names load on first use, so that importing the package costs nothing.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cavemem_mcp.errors import (
        CaveError,
        ForbiddenError,
        InvalidArgumentsError,
        MemoryTooLargeError,
        OperationFailedError,
        StoreError,
        StoreFullError,
    )
    from cavemem_mcp.model import Forgotten, History, Hit, Memory, Recall, Recovered, Remembered, Superseded
    from cavemem_mcp.service import Cavemem, open_memory

__version__ = "0.1.0"

__all__ = [
    "CaveError",
    "Cavemem",
    "ForbiddenError",
    "Forgotten",
    "History",
    "Hit",
    "InvalidArgumentsError",
    "Memory",
    "MemoryTooLargeError",
    "OperationFailedError",
    "Recall",
    "Recovered",
    "Remembered",
    "StoreError",
    "StoreFullError",
    "Superseded",
    "__version__",
    "open_memory",
]


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it."""
    if name in __all__:
        from importlib import import_module

        for home in ("errors", "model", "service"):
            members = vars(import_module(f"{__name__}.{home}"))
            if name in members:
                return members[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
