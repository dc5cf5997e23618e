"""A client of the `cavemem` command for Python programs. Needs nothing but the standard library; may be copied.

It runs the command named by the environment variable `CAVEMEM_BIN`, else `cavemem` from the `PATH`, once for each call.
It checks, ranks and stores nothing by itself: results are the JSON objects that the command answers, as dictionaries,
and what the command refuses is a `CavememError` with the command's exit status and words.

    from cavemem_mcp.clients import cavemem

    stored = cavemem.remember("Webshop: deploys on Tuesday.")
    for hit in cavemem.recall("webshop deploys", token_budget=500)["hits"]:
        print(hit["text"])
"""

import json
import os
import subprocess
import threading
from contextlib import suppress
from typing import Any

MEMORY_TOO_LARGE_EXIT_CODE = 65
"""Exit status for a text that is larger than one memory may be."""
OUTPUT_BYTES_MAX = 32 * 1024 * 1024
"""Largest answer that is taken; a recall without cap may be larger."""
SECONDS_MAX = 60
"""How long a call may take."""


class CavememError(Exception):
    """The command failed.

    Attributes:
        exit_code: Its exit status, negative for the signal that ended it; None where it did not run or was ended here.
        stderr: What it wrote to standard error: usually one line, `{"error": id, "message": text}`.
    """

    def __init__(self, message: str, *, exit_code: int | None, stderr: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.stderr = stderr


def remember(text: str) -> dict[str, Any]:
    """Store a fact; return `{"id", "created_at", "basis"}`."""
    return json.loads(_run(["remember", "--stdin"], text))


def recall(query: str, limit: int | None = None, token_budget: int | None = None) -> dict[str, Any]:
    """Find facts; return `{"hits": [{"id", "text", "score", "tokens_added", …}], "basis"}`, best first.

    Args:
        query: Words to find.
        limit: Most hits; left out, or 0, it is the command's default.
        token_budget: Most o200k_base tokens of all hits; left out, it is the command's default; 0 lifts the cap.
    """
    numbers = [] if limit is None and token_budget is None else [str(limit or 0)]
    if token_budget is not None:
        numbers.append(str(token_budget))
    return json.loads(_run(["recall", "--", query, *numbers]))


def supersede(id: str, text: str) -> dict[str, Any]:
    """Replace a fact that is no longer true; return `{"id", "supersedes", "created_at", "basis"}`."""
    return json.loads(_run(["supersede", "--stdin", "--", id], text))


def history(id: str) -> dict[str, Any]:
    """Return every version of a fact, oldest first: `{"history": [{"id", "text", "created_at", …}], "basis"}`."""
    return json.loads(_run(["history", "--", id]))


def forget(id: str) -> dict[str, Any]:
    """Delete one version for good; return `{"forgotten": whether there was one}`."""
    return json.loads(_run(["forget", "--", id]))


def recover(handle: str) -> str:
    """Return the exact original of a shortened hit."""
    return _run(["recover", "--", handle])


def _run(arguments: list[str], text: str = "") -> str:
    """Run the command with a text on its standard input and return its answer; all as UTF-8 in every locale.

    Half a surrogate pair, which UTF-8 has no bytes for, is passed on in bytes that the command refuses.
    """
    command = [os.environ.get("CAVEMEM_BIN") or "cavemem", *arguments]
    try:
        process = subprocess.Popen(  # noqa: S603 - running this command is the purpose
            [os.fsencode(word) if word is command[0] else word.encode("utf-8", "surrogatepass") for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        raise CavememError(
            f"{command[0]} cannot be run: {error.strerror}; install cavemem-mcp, or set CAVEMEM_BIN to its command",
            exit_code=None,
            stderr="",
        ) from error
    output, stderr, is_ended = _talk(process, text.encode("utf-8", "surrogatepass"))
    words = stderr.decode("utf-8", "replace").strip()
    if is_ended:
        raise CavememError(
            f"cavemem was ended: it answered more than {OUTPUT_BYTES_MAX} bytes or took over {SECONDS_MAX} seconds",
            exit_code=None,
            stderr=words,
        )
    if process.returncode:
        raise CavememError(
            f"cavemem ended with status {process.returncode}: {words}", exit_code=process.returncode, stderr=words
        )
    return output.decode("utf-8")


def _talk(process: subprocess.Popen[bytes], text: bytes) -> tuple[bytes, bytes, bool]:
    """Write and read all streams at once; return the answer, standard error, and whether it had to be ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    stdin, stderr = process.stdin, process.stderr
    errors: list[bytes] = []

    def write() -> None:
        with suppress(BrokenPipeError):  # a command that refuses a text does not read it to its end
            stdin.write(text)
        with suppress(BrokenPipeError):
            stdin.close()

    threads = [threading.Thread(target=write), threading.Thread(target=lambda: errors.append(stderr.read()))]
    deadline = threading.Timer(SECONDS_MAX, process.kill)
    deadline.start()
    for thread in threads:
        thread.start()
    output = process.stdout.read(OUTPUT_BYTES_MAX + 1)
    is_too_large = len(output) > OUTPUT_BYTES_MAX
    if is_too_large:
        process.kill()
    for thread in threads:
        thread.join()
    process.wait()
    is_late = deadline.finished.is_set()
    deadline.cancel()
    process.stdout.close()
    process.stderr.close()
    return output, b"".join(errors), is_too_large or is_late
