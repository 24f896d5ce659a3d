"""The tasks of a source with tools: the model may call them before it answers; the source's verifier judges."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from burnish.core.task import Task, Verdict
from burnish.envs.of_mcp import mcp_tools
from burnish.envs.tools import Tool, ToolEnv
from burnish.reward_functions.load import load_function
from burnish.tasks.batched import batched
from burnish.tasks.source import EagerScoring, SameTasks, Source


class Tooled(SameTasks):
    """Each task gives an environment in which tools are called, and their schemas for the chat template."""

    def __init__(self, source: Source, tools: Sequence[Tool]) -> None:
        inner = batched(source)
        super().__init__(inner, inner.drop_failed)
        self._inner, self.tools = inner, tuple(tools)
        self.gives = source.gives | {"env", "tools"}

    @property
    def eager(self) -> EagerScoring | None:
        return None

    def task(self, split: str, index: int) -> Task:
        found = self.source.task(split, index)
        given = {
            **found.given,
            "env": partial(ToolEnv, self.tools),
            "tools": [dict(tool.schema) for tool in self.tools],
        }
        return Task(found.kind, found.prompt, given, found.key)

    def require_verifier(self, split: str) -> None:
        self._inner.require_verifier(split)

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.verdicts([task], [reply])[0]

    def verdicts(self, tasks: list[Task], replies: list[str]) -> Sequence[Verdict]:
        return self._inner.verdicts(tasks, replies)


def read_tools(text: str) -> list[Tool]:
    """The tools that a text names: my_tools.py:search,my_tools.py:calculate, or mcp:COMMAND for those of a server."""
    found: list[Tool] = []
    makers: dict[str, str] = {}  # by the name in small letters: search beside Search is a mistake, or a trap
    for piece in (piece.strip() for piece in text.split(",") if piece.strip()):
        if piece.startswith("mcp:"):
            added = mcp_tools(piece.removeprefix("mcp:"))
        else:
            added = [Tool.of(load_function(piece, "tool"))]
        for tool in added:
            if (other := makers.setdefault(tool.name.lower(), piece)) != piece or tool.name in (t.name for t in found):
                raise ValueError(f"two tools are called {tool.name!r}, one of {other} and one of {piece}; rename one")
            found.append(tool)
    return found


def has_tools(source: Source) -> bool:
    """Whether the environment of a task is one of tools, which does not reward."""
    while isinstance(source, SameTasks):
        if isinstance(source, Tooled):
            return True
        source = source.source
    return False
