"""Tools by name: what `--tools` takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from burnish.envs.box_shell import shell_tools
from burnish.envs.folder_tools import folder_tools
from burnish.envs.of_mcp import mcp_tools
from burnish.envs.python_tools import python_tools
from burnish.envs.sql_tools import sql_tools
from burnish.envs.tools import Tool
from burnish.reward_functions.load import load_function

_KINDS: dict[str, Callable[[str], list[Tool]]] = {
    "mcp": mcp_tools,
    "sql": sql_tools,
    "folder": folder_tools,
    "python": python_tools,
    "bash": shell_tools,
}


def read_tools(text: str) -> list[Tool]:
    """The tools that a text names: my_tools.py:search,my_tools.py:Notebook (a class, whose methods are
    tools with a state), mcp:COMMAND for those of a server, sql:FILE for a
    database, folder:DIR for documents, python for an interpreter, bash or
    bash:DIR for a shell."""
    found: list[Tool] = []
    makers: dict[str, str] = {}  # by the name in small letters: search beside Search is a mistake, or a trap
    for piece in (piece.strip() for piece in text.split(",") if piece.strip()):
        kind, colon, place = piece.partition(":")
        if kind in _KINDS and (colon or kind in ("python", "bash")):
            added = _KINDS[kind](place)
        else:
            named = load_function(piece, "tool")
            added = Tool.all_of(named) if inspect.isclass(named) else [Tool.of(named)]
        for tool in added:
            if (other := makers.setdefault(tool.name.lower(), piece)) != piece or tool.name in (t.name for t in found):
                raise ValueError(f"two tools are called {tool.name!r}, one of {other} and one of {piece}; rename one")
            found.append(tool)
    return found
