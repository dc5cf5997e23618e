"""The errors that callers may meet, their ids and exit codes. Knows no storage engine and no protocol.

```
CaveError                     error_id                   exit code
├── InvalidArgumentsError     cave_invalid_arguments     1
├── MemoryTooLargeError       cave_memory_too_large      65
├── ForbiddenError            cave_forbidden             1
├── StoreFullError            cave_store_full            1
├── OperationFailedError      cave_<operation>_failed    1   (remember, recall, supersede, history, forget, recover)
└── StoreError                cave_store_failed          1   (the service turns it into OperationFailedError)
```

Anything else that escapes is a defect of ours: callers see `cave_internal_error` and the log has the traceback.
"""

from typing import ClassVar, Final, Literal

Operation = Literal["remember", "recall", "supersede", "history", "forget", "recover"]

INTERNAL_ERROR_ID: Final = "cave_internal_error"
CAUSES_DESCRIBED_MAX: Final = 5


class CaveError(Exception):
    """An expected failure.

    Attributes:
        error_id: Stable id that programs match on.
        message: What went wrong and what to do next; never contains memory text.
        exit_code: Status with which the command line ends.
    """

    exit_code: ClassVar[int] = 1
    error_id: str

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def as_json(self) -> dict[str, str]:
        """Return the error as the contract's object: `{"error": id, "message": text}`."""
        return {"error": self.error_id, "message": self.message}


class InvalidArgumentsError(CaveError):
    """An argument is missing, unknown, of the wrong kind or out of range."""

    error_id = "cave_invalid_arguments"


class MemoryTooLargeError(CaveError):
    """The text has more UTF-8 bytes than one memory may hold."""

    error_id = "cave_memory_too_large"
    exit_code = 65


class ForbiddenError(CaveError):
    """The caller may read and not write."""

    error_id = "cave_forbidden"


class StoreFullError(CaveError):
    """The memories take as many bytes as they may; nothing was stored and nothing is lost."""

    error_id = "cave_store_full"


class OperationFailedError(CaveError):
    """One of the six operations could not do what was asked; nothing has changed unless the message says so."""

    def __init__(self, operation: Operation, message: str) -> None:
        super().__init__(message)
        self.error_id = f"cave_{operation}_failed"


class StoreError(CaveError):
    """The store's files cannot be used as they are: busy, full, damaged, foreign, or of a newer layout.

    Attributes:
        is_mended: Whether what was wrong has been put right meanwhile, so that the same call works now.
    """

    error_id = "cave_store_failed"

    def __init__(self, message: str, *, is_mended: bool = False) -> None:
        super().__init__(message)
        self.is_mended = is_mended


def origin_of(error: BaseException) -> str:
    """Describe for the log where an unexpected exception came from. Not its message, which may quote a memory."""
    import traceback

    causes: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(causes) < CAUSES_DESCRIBED_MAX:
        frames = "".join(traceback.format_tb(cause.__traceback__))
        causes.append(f"{type(cause).__module__}.{type(cause).__qualname__}\n{frames}")
        cause = cause.__cause__ or cause.__context__
    return "caused by ".join(causes)
