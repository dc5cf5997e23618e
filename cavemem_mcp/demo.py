"""`cavemem demo`: the main job on real input. Starts the real stdio server on a temporary store and is its client.

Every step is checked; a step that is not as expected ends the demo with exit status 1.
"""

import hashlib
import random
import sys
import tempfile
from collections.abc import Callable
from typing import Any, Final

import anyio
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult

from cavemem_mcp import tokens
from cavemem_mcp.model import memory_id, recovery_handle

FACTS: Final = (
    "Webshop: deploys on Friday afternoon, decided by Dana on 2026-02-03.",
    "Webshop: the billing service is written in Go, because its PDF library is; its code lives in services/billing.",
    "Zoë prefers pull requests under 300 lines and reviews them before 10:00.",
    "Travel: night trains are preferred to flights for distances under 1000 km.",
)
CORRECTION: Final = "Webshop: deploys on Tuesday morning since 2026-03-09, because a Friday deploy broke billing."
LOG_LINES: Final = 1500
LOG_SEED: Final = 20260309
SHORTENED_TOKENS: Final = 300

Show = Callable[[str], None]


class UnexpectedStepError(Exception):
    """A step of the demo did not go as it must."""


def main(show: Show) -> int:
    """Play the demo, giving each line to `show`; return the exit status."""
    with tempfile.TemporaryDirectory(prefix="cavemem-demo-") as home:
        return anyio.run(_play, home, show)


async def _play(home: str, show: Show) -> int:
    server = StdioServerParameters(command=sys.executable, args=["-m", "cavemem_mcp"], env={"CAVEMAN_HOME": home})
    async with Client(server) as client:
        tools = await client.list_tools()
        show(f"The server runs on stdio with a temporary store and offers {len(tools.tools)} tools.")
        try:
            for play in (_remember, _correct, _recover, _forget):
                await play(client, show)
        except UnexpectedStepError as failure:
            show(f"FAILED: it is not so that {failure}")
            return 1
    show("\nEvery step was as expected; the temporary store is gone.")
    return 0


async def _remember(client: Client, show: Show) -> None:
    _title(show, f"remember: {len(FACTS)} facts and a log")
    for fact in FACTS:
        remembered = await _call(client, "remember", text=fact)
        show(f"  {remembered['id']}  {tokens.count(fact):>6} tokens  {fact}")
    log = _log()
    remembered = await _call(client, "remember", text=log)
    show(f"  {remembered['id']}  {tokens.count(log):>6} tokens  a log of {LOG_LINES} lines, {len(log.encode())} bytes")


async def _correct(client: Client, show: Show) -> None:
    hits = await _recall(client, show, "webshop deploys")
    _expect("the fact about deploys comes first", holds=bool(hits) and hits[0]["text"] == FACTS[0])

    _title(show, "supersede: the fact is no longer true")
    superseded = await _call(client, "supersede", id=hits[0]["id"], text=CORRECTION)
    show(f"  {superseded['id']} supersedes {superseded['supersedes']}")

    hits = await _recall(client, show, "webshop deploys")
    _expect("the correction comes first", holds=bool(hits) and hits[0]["text"] == CORRECTION)
    _expect("what was superseded is recalled no more", holds=FACTS[0] not in [hit["text"] for hit in hits])

    _title(show, "history: what was true when")
    history = (await _call(client, "history", id=superseded["supersedes"]))["history"]
    for version in history:
        show(f"  {version['valid_from'][:19]} to {version.get('valid_until', 'now')[:19]}: {version['text']}")
    _expect("history has both versions", holds=[version["text"] for version in history] == [FACTS[0], CORRECTION])

    hits = await _recall(client, show, "holiday photographs")
    _expect("no shared word recalls nothing", holds=hits == [])


async def _recover(client: Client, show: Show) -> None:
    log = _log()
    hits = await _recall(client, show, "payment gateway timeout", token_budget=SHORTENED_TOKENS)
    _expect("the log comes back alone", holds=len(hits) == 1)
    _expect("it fits the budget", holds=hits[0]["tokens_added"] <= SHORTENED_TOKENS)
    _expect("the line that answers is in it", holds=log.split("\n")[LOG_LINES // 2] in hits[0]["text"].split("\n"))

    _title(show, f"recover: the log behind {hits[0]['recovery_handle']}")
    recovered = await _call(client, "recover", handle=hits[0]["recovery_handle"])
    original = recovered["text"].encode()
    digest = hashlib.sha256(original).hexdigest()
    show(f"  {len(original)} bytes, {tokens.count(recovered['text'])} tokens, sha256 {digest}")
    _expect("the recovered bytes are the remembered ones", holds=original == log.encode())
    show("  equal to what was remembered, byte for byte")


async def _forget(client: Client, show: Show) -> None:
    log = _log()
    _title(show, "forget: the log, for good")
    forgotten = await _call(client, "forget", id=memory_id(log))
    _expect("the log was there to forget", holds=forgotten == {"forgotten": True})
    answer = await client.call_tool("cavemem_recover", {"handle": recovery_handle(log)})
    _expect("a forgotten original cannot be recovered", holds=answer.is_error is True)
    show(f"  {memory_id(log)} is gone; its handle answers: {_structured(answer)['message']}")


async def _recall(client: Client, show: Show, query: str, **arguments: int) -> list[dict[str, Any]]:
    _title(show, f"recall: {query!r}" + "".join(f", {name} {value}" for name, value in arguments.items()))
    answer = await _call(client, "recall", query=query, **arguments)
    hits: list[dict[str, Any]] = answer["hits"]
    for hit in hits:
        text = hit["text"].rstrip("\n").replace("\n", "\n" + " " * 31)
        show(f"  score {hit['score']:.3f}  {hit['tokens_added']:>6} tokens  {text}")
        if "recovery_handle" in hit:
            show(" " * 31 + f"shortened; recovery_handle {hit['recovery_handle']}")
    total = sum(hit["tokens_added"] for hit in hits)
    show(f"  {len(hits)} hits, {total} tokens, {answer.get('omitted', 0)} more left out by the budget")
    return hits


async def _call(client: Client, operation: str, **arguments: object) -> dict[str, Any]:
    answer = await client.call_tool(f"cavemem_{operation}", arguments)
    _expect(f"{operation} succeeds", holds=not answer.is_error)
    return _structured(answer)


def _structured(answer: CallToolResult) -> dict[str, Any]:
    structured: dict[str, Any] = answer.structured_content or {}
    return structured


def _expect(step: str, *, holds: bool) -> None:
    if not holds:
        raise UnexpectedStepError(step)


def _title(show: Show, title: str) -> None:
    show(f"\n{title}")


def _log() -> str:
    """Make a web shop's log: the same on every run."""
    chance = random.Random(LOG_SEED)  # noqa: S311 - sample data
    lines = [
        f"2026-03-06T{10 + second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z INFO checkout "
        f"order={chance.randrange(10**6):06d} total={chance.randrange(100, 30_000) / 100:.2f} "
        f"took={chance.randrange(9, 400)}ms"
        for second in range(LOG_LINES)
    ]
    lines[LOG_LINES // 2] += " ERROR payment gateway timeout"
    return "\n".join(lines) + "\n"
