"""Tools by name: what `--tools` takes."""

from __future__ import annotations

import inspect

from burnish.envs.of_mcp import mcp_tools
from burnish.envs.tools import Tool
from burnish.reward_functions.load import load_function


def read_tools(text: str) -> list[Tool]:
    """The tools that a text names: my_tools.py:search,my_tools.py:Notebook (a class, whose methods are
    tools with a state), or mcp:COMMAND for those of a server."""
    found: list[Tool] = []
    makers: dict[str, str] = {}  # by the name in small letters: search beside Search is a mistake, or a trap
    for piece in (piece.strip() for piece in text.split(",") if piece.strip()):
        if piece.startswith("mcp:"):
            added = mcp_tools(piece.removeprefix("mcp:"))
        else:
            named = load_function(piece, "tool")
            added = Tool.all_of(named) if inspect.isclass(named) else [Tool.of(named)]
        for tool in added:
            if (other := makers.setdefault(tool.name.lower(), piece)) != piece or tool.name in (t.name for t in found):
                raise ValueError(f"two tools are called {tool.name!r}, one of {other} and one of {piece}; rename one")
            found.append(tool)
    return found
