"""What people reach through their client beside the tools: resources to attach, prompts to run, completions of ids.

Owns their texts and their protocol errors; the SDK's own would log tracebacks or blame the server for bad arguments.
"""

import json
import logging
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

import anyio.to_thread
from mcp.server import MCPServer
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    GetPromptResult,
    Prompt,
    PromptArgument,
    PromptMessage,
    Resource,
    ResourceTemplate,
    ResourceTemplateReference,
    TextContent,
)
from pydantic import AnyUrl

from cavemem_mcp import overview
from cavemem_mcp.errors import CaveError, InvalidArgumentsError, OperationFailedError, StoreError, origin_of
from cavemem_mcp.model import Memory, checked_nonblank, checked_string
from cavemem_mcp.service import Cavemem

logger = logging.getLogger(__name__)

STATUS: Final = "cavemem://status"
MEMORY: Final = "cavemem://memory/"
RECOVERY: Final = "cavemem://recovery/"

COMPLETIONS_MAX: Final = 100
"""Most completions of one answer, by the protocol."""

RESOURCES: Final = [
    Resource(
        uri=STATUS,
        name="status",
        title="Memory status",
        description="How many memories there are, their size and dates, and the versions of the programs.",
        mime_type="application/json",
    )
]
TEMPLATES: Final = [
    ResourceTemplate(
        uri_template=MEMORY + "{id}",
        name="memory",
        title="A memory",
        description="One version of a memory: its dates, and its text.",
        mime_type="text/plain",
    ),
    ResourceTemplate(
        uri_template=RECOVERY + "{handle}",
        name="recovery",
        title="The original of a shortened hit",
        description="The exact text behind a recovery_handle of cavemem_recall.",
        mime_type="text/plain",
    ),
]
PROMPTS: Final = [
    Prompt(
        name="remember_this_session",
        title="Remember this session",
        description="Store what later sessions need of this one.",
        arguments=[],
    ),
    Prompt(
        name="what_do_you_know",
        title="What do you know about…?",
        description="Tell everything that is remembered about a topic.",
        arguments=[PromptArgument(name="topic", description="What to look for", required=True)],
    ),
]

REMEMBER_THIS_SESSION: Final = """\
Go through this session and store what a later one needs: decisions and their reasons, preferences, my corrections, \
causes and their fixes, names, paths and dates.

1. Recall each subject first. Where a memory has become untrue, supersede it; what is known already needs nothing.
2. Remember the rest, one fact a call, in one or two plain sentences that name their subject and are clear out of \
context, with absolute dates.
3. Leave out what the repository already says, chatter, and anything secret.

Then list what you stored or superseded, with ids. If nothing is worth remembering, say so."""

WHAT_DO_YOU_KNOW: Final = """\
What do you know about the topic between the lines?
---
{topic}
---
Recall it with several queries of 2-6 distinctive words: its names, then synonyms and related terms; recover what is \
shortened and matters. Tell me what is remembered, with ids, saying since when it holds where that matters and \
where memories contradict each other. Use nothing but memories; if nothing matches, say that nothing is remembered \
about it, which does not mean that it is untrue."""


class MemorySource(Protocol):
    """What a server's lifespan gives to its handlers."""

    def get(self) -> Cavemem:
        """Return the memory.

        Raises:
            StoreError: It cannot be opened.
        """
        ...


Source = TypeVar("Source", bound=MemorySource)


class ReadableServer(MCPServer[Source]):
    """An MCP server with these resources, prompts and completions."""

    def offer_completions(self) -> None:
        """Answer requests for completions; the SDK's own way would not let the handler reach the memory."""
        self._lowlevel_server.add_request_handler("completion/complete", CompleteRequestParams, self._complete)

    async def list_resources(self) -> list[Resource]:
        """Return the resources that have a fixed address."""
        return RESOURCES

    async def list_resource_templates(self) -> list[ResourceTemplate]:
        """Return the addresses that hold an id or a handle."""
        return TEMPLATES

    async def list_prompts(self) -> list[Prompt]:
        """Return the prompts."""
        return PROMPTS

    async def read_resource(
        self, uri: AnyUrl | str, context: Context[Source, Any] | None = None
    ) -> Iterable[ReadResourceContents]:
        """Read one resource.

        Raises:
            ResourceNotFoundError: There is none at this address.
            ResourceError: It cannot be read now; says what to do.
            MCPError: Reading it met a defect, which is logged.
        """
        assert context is not None
        source = context.request_context.lifespan_context
        try:
            return [await anyio.to_thread.run_sync(_read, str(uri), source)]
        except ResourceError:
            raise
        except CaveError as error:
            raise ResourceError(error.message) from error
        except Exception as error:
            logger.error("reading a resource failed unexpectedly: %s", origin_of(error))  # noqa: TRY400  # no message
            raise MCPError(INTERNAL_ERROR, "a defect in this server, described in its log") from None

    async def get_prompt(
        self, name: str, arguments: dict[str, Any] | None = None, context: Context[Source, Any] | None = None
    ) -> GetPromptResult:
        """Return one prompt.

        Raises:
            MCPError: There is no such prompt, or its arguments are wrong.
        """
        prompt = next((prompt for prompt in PROMPTS if prompt.name == name), None)
        if prompt is None:
            names = ", ".join(prompt.name for prompt in PROMPTS)
            raise MCPError(INVALID_PARAMS, f"Unknown prompt; this server has {names}")
        given = arguments or {}
        wanted = [argument.name for argument in prompt.arguments or ()]
        if not given.keys() <= set(wanted):
            raise MCPError(INVALID_PARAMS, f"Unknown argument; {name} takes {', '.join(wanted) or 'none'}")
        if not given.keys() >= set(wanted):
            raise MCPError(INVALID_PARAMS, f"{', '.join(wanted)}: required argument is missing; say what to look for")
        if not wanted:
            text = REMEMBER_THIS_SESSION
        else:
            try:
                text = WHAT_DO_YOU_KNOW.format(topic=checked_nonblank("topic", given["topic"]).strip())
            except InvalidArgumentsError as error:
                raise MCPError(INVALID_PARAMS, error.message) from None
        message = PromptMessage(role="user", content=TextContent(type="text", text=text))
        return GetPromptResult(description=prompt.description, messages=[message])

    async def _complete(self, context: ServerRequestContext[Source], params: CompleteRequestParams) -> CompleteResult:
        completion = Completion(values=[], has_more=False)
        if (
            isinstance(params.ref, ResourceTemplateReference)
            and params.ref.uri == MEMORY + "{id}"
            and params.argument.name == "id"
        ):
            try:
                completion = await anyio.to_thread.run_sync(_ids, params.argument.value, context.lifespan_context)
            except InvalidArgumentsError as error:
                raise MCPError(INVALID_PARAMS, error.message) from None
            except CaveError as error:
                raise MCPError(INTERNAL_ERROR, error.message) from None
            except Exception as error:
                logger.error("completing an id failed unexpectedly: %s", origin_of(error))  # noqa: TRY400  # no message
                raise MCPError(INTERNAL_ERROR, "a defect in this server, described in its log") from None
        return CompleteResult(completion=completion)


def _read(uri: str, source: MemorySource) -> ReadResourceContents:
    try:
        checked_string("uri", uri)
    except InvalidArgumentsError as error:
        raise ResourceNotFoundError(error.message) from None
    if uri == STATUS:
        status = overview.status(source.get()).as_json()
        del status["path"]  # whoever reads this over a network has no use for it
        return ReadResourceContents(json.dumps(status), "application/json")
    if uri.startswith(MEMORY):
        with source.get().store.read() as snapshot:
            memory = snapshot.memory(uri.removeprefix(MEMORY))
        if memory is not None:
            return ReadResourceContents(_with_dates(memory), "text/plain")
    if uri.startswith(RECOVERY):
        try:
            recovered = source.get().recover(uri.removeprefix(RECOVERY))
        except (InvalidArgumentsError, OperationFailedError) as error:
            if not isinstance(error.__cause__, StoreError):
                raise ResourceNotFoundError(error.message) from None
            raise
        return ReadResourceContents(recovered.text, "text/plain")
    raise ResourceNotFoundError("There is no such resource; recall to find ids and handles")


def _with_dates(memory: Memory) -> str:
    fields = memory.as_json()
    text = fields.pop("text")
    return "".join(f"{name}: {value}\n" for name, value in fields.items()) + f"\n{text}"


def _ids(prefix: str, source: MemorySource) -> Completion:
    checked_string("value", prefix)
    with source.get().store.read() as snapshot:
        found = snapshot.memories(id_prefix=prefix)
        ids = [memory.id for memory in islice((memory for memory in found if memory.is_current), COMPLETIONS_MAX + 1)]
    return Completion(values=ids[:COMPLETIONS_MAX], has_more=len(ids) > COMPLETIONS_MAX)
