"""Build what two hosts install: a desktop bundle and a Claude Code plugin.

Run from the repository: `python -m cavemem_mcp.integrations.build FOLDER`. Into a new or empty folder come:

```
cavemem-VERSION.mcpb   the desktop bundle, ready to open with Claude Desktop
bundle/                what is packed in it: the manifest, the icon, these sources, and what they depend on, for uv
claude-code/           a plugin marketplace with one plugin: the server, by the installed command, and its hooks
```
"""

import json
import shutil
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any, Final

from cavemem_mcp import __version__
from cavemem_mcp.integrations import icon
from cavemem_mcp.server import TOOLS

PACKAGE: Final = Path(__file__).parent.parent
ROOT: Final = PACKAGE.parent
NAME: Final = "cavemem"
TITLE: Final = "Cave Memory"
DESCRIPTION: Final = "Durable memory for AI agents, kept on this machine."
AUTHOR: Final = {"name": "The cavemem-mcp authors"}
COMMAND: Final = "${CAVEMEM_BIN:-cavemem}"
"""How the plugin starts the installed command: by name, unless this variable has its path."""
ZIP_TIME: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest that the format knows: the same sources give the same bytes."""
HOOK_SECONDS_MAX: Final = 5

LONG_DESCRIPTION: Final = """\
Agents forget between sessions. This server keeps plain facts in a SQLite file on your machine, recalls the relevant \
ones by exact BM25 inside a token budget, and lets every shortened byte be recovered. No model, no network and no \
account is involved."""

PLUGIN_README: Final = f"""\
# {TITLE} for Claude Code

Gives Claude Code a memory that lasts between sessions: facts, decisions and preferences in a SQLite file on your
machine, recalled by the words they share with the question, inside a token budget. No model, no network and no account
is involved.

The plugin starts the `cavemem` command, so install that first; where it is not on the `PATH` of Claude Code, set
`CAVEMEM_BIN` to its absolute path. Then, with the folder that holds this plugin's marketplace:

```sh
claude plugin marketplace add ./claude-code
claude plugin install {NAME}@{NAME}
```

Memories are in `~/.caveman/mem`, or in `mem` under `CAVEMAN_HOME`.

The plugin's hooks run `cavemem hook` at the start of a session and for each prompt, to show Claude memories that bear
on it. They show nothing until you turn them on; `cavemem help` says how.
"""


def main() -> int:
    """Build into the folder that the command line names; return the exit status."""
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m cavemem_mcp.integrations.build FOLDER\n")
        return 1
    folder = Path(sys.argv[1])
    if not (ROOT / "pyproject.toml").exists():
        sys.stderr.write("this is built from the repository, which is not here\n")
        return 1
    if folder.exists() and any(folder.iterdir()):
        sys.stderr.write(f"{folder} is not empty; name a new folder\n")
        return 1
    for path in build(folder):
        sys.stdout.write(f"{path}\n")
    return 0


def build(folder: Path) -> list[Path]:
    """Build everything into a folder that is new or empty; return what to install."""
    bundle, marketplace = folder / "bundle", folder / "claude-code"
    _write_bundle(bundle)
    _write_marketplace(marketplace)
    return [_packed(bundle, folder / f"{NAME}-{__version__}.mcpb"), marketplace]


def _write_bundle(folder: Path) -> None:
    """Write a bundle that uv runs from its sources, so that nothing but its dependencies is fetched."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    _write_json(folder / "manifest.json", _manifest(project))
    _write(folder / "icon.png", icon.png())
    _write(folder / "icon.svg", icon.svg().encode())
    _write(
        folder / "pyproject.toml",
        (
            f'[project]\nname = "{NAME}-bundle"\nversion = "{__version__}"\n'
            f'requires-python = "{project["requires-python"]}"\n'
            f"dependencies = {json.dumps(project['dependencies'])}\n\n"
            "[tool.uv]\npackage = false\n"
        ).encode(),
    )
    shutil.copy(ROOT / "LICENSE", folder)
    shutil.copytree(PACKAGE, folder / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))


def _manifest(project: dict[str, Any]) -> dict[str, object]:
    return {
        "manifest_version": "0.4",
        "name": NAME,
        "display_name": TITLE,
        "version": __version__,
        "description": DESCRIPTION,
        "long_description": LONG_DESCRIPTION,
        "author": AUTHOR,
        "license": project["license"],
        "keywords": project["keywords"],
        "icon": "icon.png",
        "server": {
            "type": "uv",
            "entry_point": f"{PACKAGE.name}/__main__.py",
            "mcp_config": {
                "command": "uv",
                "args": ["run", "--directory", "${__dirname}", "python", "-m", PACKAGE.name],
                "env": {"CAVEMAN_HOME": "${user_config.home}"},
            },
        },
        "tools": [{"name": tool.name, "description": tool.title} for tool in TOOLS],
        "user_config": {
            "home": {
                "type": "directory",
                "title": "Data folder",
                "description": "Its subfolder mem holds the memories; clients that name the same folder share them.",
                "default": "${HOME}/.caveman",
                "required": True,
            }
        },
        "compatibility": {"platforms": ["darwin", "linux"], "runtimes": {"python": project["requires-python"]}},
    }


def _write_marketplace(folder: Path) -> None:
    """Write a marketplace that holds the plugin, since Claude Code installs plugins from one."""
    plugin = folder / NAME
    _write_json(
        folder / ".claude-plugin" / "marketplace.json",
        {
            "name": NAME,
            "owner": AUTHOR,
            "metadata": {"description": DESCRIPTION},
            "plugins": [{"name": NAME, "source": f"./{NAME}", "description": DESCRIPTION}],
        },
    )
    _write_json(
        plugin / ".claude-plugin" / "plugin.json",
        {
            "name": NAME,
            "displayName": TITLE,
            "version": __version__,
            "description": DESCRIPTION,
            "author": AUTHOR,
            "license": "MIT",
            "keywords": ["memory", "mcp"],
        },
    )
    _write_json(plugin / ".mcp.json", {"mcpServers": {NAME: {"command": COMMAND, "args": ["mcp"]}}})
    hook = {"type": "command", "command": f'"{COMMAND}" hook', "timeout": HOOK_SECONDS_MAX}
    _write_json(
        plugin / "hooks" / "hooks.json",
        {
            "description": "Shows memories that bear on a session or a prompt, once that is turned on",
            "hooks": {
                "SessionStart": [{"matcher": "startup|resume|clear", "hooks": [hook]}],
                "UserPromptSubmit": [{"hooks": [hook]}],
            },
        },
    )
    _write(plugin / "README.md", PLUGIN_README.encode())
    _write(plugin / "icon.png", icon.png())
    shutil.copy(ROOT / "LICENSE", plugin)


def _packed(folder: Path, path: Path) -> Path:
    """Pack a folder's files; the archive depends on nothing but their names and contents."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member in sorted(member for member in folder.rglob("*") if member.is_file()):
            info = zipfile.ZipInfo(member.relative_to(folder).as_posix(), ZIP_TIME)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o100644 << 16
            archive.writestr(info, member.read_bytes())
    return path


def _write_json(path: Path, value: object) -> None:
    _write(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


if __name__ == "__main__":
    sys.exit(main())
