"""What each client has to be told, in its own words, to use this installation. Edits nothing and reads no settings."""

import json
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NAME: Final = "cavemem"
"""What the server is called in every client."""
PROGRAMS: Final = ("cavemem", "cavemem-mcp")


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How a client reaches the server.

    Attributes:
        command: The program and its arguments, for clients that start it.
        environment: What the program finds in its environment; clients pass on little of their own.
        url: Where a server that was started by hand is found.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    url: str


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a client has to be told.

    Attributes:
        snippet: The client's configuration, or the part of it that is about this server.
        advice: Where that belongs, and what does it instead.
    """

    snippet: str
    advice: str


def installed_command(started_as: str) -> list[str]:
    """Return the absolute command of this installation, given the name or path that the running program has.

    A link that was followed to it is kept: it stays where it is when the version behind it changes.
    """
    found = shutil.which(started_as) if Path(started_as).name in PROGRAMS else None
    script = Path(found) if found else Path(sysconfig.get_path("scripts")) / NAME
    return [str(script.absolute())] if script.exists() else [sys.executable, "-m", "cavemem_mcp"]


def _claude_desktop(launch: Launch) -> Recipe:
    return Recipe(
        snippet=_json({"mcpServers": {NAME: _program(launch)}}),
        advice="Goes into claude_desktop_config.json (Settings, Developer, Edit Config); then restart Claude Desktop.",
    )


def _claude_code(launch: Launch) -> Recipe:
    entry = {"type": "stdio", **_program(launch), "env": dict(launch.environment)}
    settings = _repeated("--env", launch.environment)
    # --env takes all the values that follow it, so that another option must stand before the name
    command = ["claude", "mcp", "add", *settings, "--scope", "user", NAME, "--", *launch.command]
    return Recipe(
        snippet=_json({"mcpServers": {NAME: entry}}),
        advice=f"Goes into .mcp.json of one project; for all of your projects run instead:\n{shlex.join(command)}",
    )


def _vscode(launch: Launch) -> Recipe:
    return Recipe(
        snippet=_json({"servers": {NAME: {"type": "stdio", **_program(launch)}}}),
        advice='Goes into .vscode/mcp.json of a workspace, or what "MCP: Open User Configuration" opens.',
    )


def _cursor(launch: Launch) -> Recipe:
    return Recipe(
        snippet=_json({"mcpServers": {NAME: _program(launch)}}),
        advice="Goes into ~/.cursor/mcp.json, or .cursor/mcp.json of one project.",
    )


def _codex(launch: Launch) -> Recipe:
    program, *arguments = launch.command
    lines = [f"[mcp_servers.{NAME}]", f"command = {_quoted(program)}"]
    lines.append(f"args = [{', '.join(_quoted(argument) for argument in arguments)}]")
    if launch.environment:
        lines += ["", f"[mcp_servers.{NAME}.env]"]
        lines += [f"{name} = {_quoted(value)}" for name, value in launch.environment.items()]
    command = ["codex", "mcp", "add", NAME, *_repeated("--env", launch.environment), "--", *launch.command]
    return Recipe(
        snippet="\n".join(lines) + "\n",
        advice=f"Goes into ~/.codex/config.toml; or run instead:\n{shlex.join(command)}",
    )


def _gemini(launch: Launch) -> Recipe:
    settings = _repeated("--env", launch.environment)
    command = ["gemini", "mcp", "add", *settings, "--scope", "user", NAME, *launch.command]
    return Recipe(
        snippet=_json({"mcpServers": {NAME: _program(launch)}}),
        advice=f"Goes into ~/.gemini/settings.json; or run instead:\n{shlex.join(command)}",
    )


def _http(launch: Launch) -> Recipe:
    return Recipe(
        snippet=_json({"mcpServers": {NAME: {"type": "http", "url": launch.url}}}),
        advice="For clients that take a URL; start the server first: cavemem mcp --transport streamable-http",
    )


CLIENTS: Final[Mapping[str, Callable[[Launch], Recipe]]] = {
    "claude-desktop": _claude_desktop,
    "claude-code": _claude_code,
    "vscode": _vscode,
    "cursor": _cursor,
    "codex": _codex,
    "gemini": _gemini,
    "http": _http,
}


def _program(launch: Launch) -> dict[str, object]:
    """Return the members on which all clients agree; where nothing is set, they leave `env` out."""
    program, *arguments = launch.command
    entry: dict[str, object] = {"command": program, "args": arguments}
    return {**entry, "env": dict(launch.environment)} if launch.environment else entry


def _repeated(option: str, environment: Mapping[str, str]) -> list[str]:
    return [word for name, value in environment.items() for word in (option, f"{name}={value}")]


def _json(configuration: object) -> str:
    return json.dumps(configuration, indent=2, ensure_ascii=False) + "\n"


def _quoted(text: str) -> str:
    """Quote for TOML, whose basic strings escape as JSON's do, and the delete character too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
