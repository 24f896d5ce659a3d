"""Tasksets of verifiers v1 with tools: the policy calls them, turn by turn, and the task's `@reward` methods pay.

A toolset of verifiers is a class whose methods are tools of an MCP server. Its server runs in this process here,
without a transport: the schemas are those that it would advertise, under the same names, and a call reaches the same
methods. Toolsets of a task are made for each episode, those of a taskset once. The state that tools share with rewards
(`vf.State`) is that of the episode. A reply without a call is the answer, and ends the episode; so does a `@stop`
method that reads the trace.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

from burnish.core.messages import Message
from burnish.core.task import Task
from burnish.envs.guarded import in_loop
from burnish.envs.played import Played
from burnish.envs.protocol import Outcome
from burnish.envs.tools import Tool, ToolEnv
from burnish.tasks.source import Source
from burnish.tasks.verifiers_trace import VerifiersTrace, library
from burnish.tool_calls import AUTO_READER, Reader

_STATE: ContextVar[Any] = ContextVar("state of the episode whose tool is called")


class ToolsetSource(Played):
    """The tasks of a taskset, each with an environment of its tools. shared: the toolsets of the taskset."""

    def __init__(self, source: Source, shared: Sequence[object]) -> None:
        self.source, self.name, self.summary = source, source.name, source.summary
        self.gives = source.gives | {"env", "tools"}
        first = source.task("train", 0).given["verifiers_task"]
        own = first.toolsets(first.config)
        for toolset in (*shared, *own):
            _check_toolset(toolset, self.name)
        _check_task(first, self.name)
        self._shared = in_loop(_set_up(shared))
        self._schemas = [dict(tool.schema) for tool in (*self._shared, *in_loop(_registered(own)))]

    def size(self, split: str) -> int | None:
        return self.source.size(split)

    def task(self, split: str, index: int) -> Task:
        found = self.source.task(split, index)
        env = partial(ToolsetEnv, found.given["verifiers_task"], found.prompt, self._shared)
        return Task("game", found.prompt, {**found.given, "env": env, "tools": self._schemas}, found.key)


class ToolsetEnv:
    """One episode. found: the task of verifiers; shared: the tools that all episodes have in common."""

    foreign = True  # it calls the code of a taskset

    def __init__(self, found: Any, prompt: str | Iterable[Message], shared: Sequence[Tool]) -> None:
        self.found, self.shared = found, shared
        self.trace = VerifiersTrace(found, prompt)
        self._own: list[Any] = []
        self._reader = AUTO_READER

    def reset(self, reader: Reader | None = None) -> str:
        """Make the toolsets of the task. The prompt is the task's own."""
        self._reader = reader or AUTO_READER
        in_loop(self._called(self.found.setup))
        self._own = self.found.toolsets(self.found.config)
        own = in_loop(_set_up(self._own, self.found.data))
        self._calls = ToolEnv([_of_episode(tool, self.trace.state) for tool in (*self.shared, *own)])
        self._calls.reset(reader=reader)
        return ""

    def tools(self) -> list[Any]:
        """The schemas, for the chat template."""
        return self._calls.tools()

    def step(self, action: str) -> Outcome:
        """Make the calls of a reply; pay at the end."""
        calls, found = self._reader.read(action).calls, self._calls.step(action)
        answers = found.observation if isinstance(found.observation, tuple) else ()
        said: dict[str, object] = {"role": "assistant", "content": action}
        if calls:
            said["tool_calls"] = [
                {"id": answer["tool_call_id"], "name": call.name, "arguments": json.dumps(dict(call.arguments))}
                for call, answer in zip(calls, answers, strict=True)
            ]
        for message in (said, *answers):
            self.trace.add(message)
        if not found.over and not in_loop(self.trace.stopped()):
            return found
        reward = in_loop(self._ended())
        metrics = {name: value for name, value in self.trace.given.metrics.items() if value is not None}
        return Outcome(reward=reward, terminated=True, info={"metrics": metrics})

    def close(self) -> None:
        """Close what the toolsets of the task have opened."""
        for toolset in self._own:
            in_loop(toolset._exit_stack.aclose())

    async def _called(self, hook: object) -> None:
        """A hook that the task has not overridden takes a runtime and does nothing with it."""
        await library("verifiers.v1.session").call_hook(hook, {"trace": self.trace.given, "runtime": None})

    async def _ended(self) -> float:
        await self._called(self.found.finalize)
        return await self.trace.score()


def _of_episode(tool: Tool, state: object) -> Tool:
    """The tool with the state of an episode."""

    async def call(arguments: dict[str, object]) -> object:
        _STATE.set(state)  # in the context of this call alone
        return await tool.function(arguments)

    return Tool(tool.name, lambda **arguments: in_loop(call(arguments)), tool.schema)


async def _set_up(toolsets: Sequence[Any], data: Any = None) -> list[Tool]:
    """The tools of toolsets that are ready for calls. data: of the task that they belong to, if to one."""
    for toolset in toolsets:
        await toolset.setup()
        if data is not None:
            await toolset.setup_task(data)
    return await _registered(toolsets)


async def _registered(toolsets: Sequence[Any]) -> list[Tool]:
    """The tools of toolsets. The function of each is a coroutine of its arguments, as a dictionary."""
    server = importlib.import_module("mcp.server.mcpserver")
    found: list[Tool] = []
    for toolset in toolsets:
        toolset._pull_state, toolset._push_state = _pulled, _pushed  # in place of its HTTP channel
        mcp = server.MCPServer(toolset.server_name or type(toolset).__name__)
        toolset.register(mcp)
        found += [_tool(mcp, toolset.server_name, described) for described in await mcp.list_tools()]
    return found


async def _pulled() -> object:
    return _STATE.get()


async def _pushed(before: bytes) -> None:
    """Tools change the state itself."""


def _tool(mcp: Any, prefix: str, described: Any) -> Tool:
    name = f"{prefix}_{described.name}" if prefix else described.name  # as verifiers' harnesses name it
    parameters = {"properties": {}, "required": [], **described.input_schema}
    about = {"name": name, "description": described.description or name, "parameters": parameters}

    async def call(arguments: dict[str, object]) -> str:
        found = await mcp.call_tool(described.name, arguments)
        pieces = [getattr(block, "text", f"[{getattr(block, 'type', 'content')}]") for block in found.content]
        if getattr(found, "is_error", False):
            raise RuntimeError("\n".join(pieces)[:1000])
        return "\n".join(pieces)

    return Tool(name, call, {"type": "function", "function": about})


def _check_toolset(toolset: Any, name: str) -> None:
    """Refuse a toolset that cannot run in this process."""
    kind, config = type(toolset).__name__, toolset.config
    where = getattr(getattr(config, "runtime", None), "type", "subprocess")
    if getattr(config, "url", None):
        raise ValueError(f"the toolset {kind} of {name!r} is a server at a URL; use --tools mcp:COMMAND for servers")
    if where != "subprocess":
        raise ValueError(f"the toolset {kind} of {name!r} runs in a sandbox ({where}), which burnish does not start")


def _check_task(found: Any, name: str) -> None:
    """Refuse tasks whose hooks need what burnish does not have."""
    base, session = library("verifiers.v1.task").Task, library("verifiers.v1.session")
    for hook in ("setup", "finalize"):
        own = getattr(type(found), hook)
        wanted = inspect.signature(own).parameters.get("runtime")
        if own is not getattr(base, hook) and wanted is not None and wanted.default is wanted.empty:
            raise ValueError(f"{hook}() of the tasks of {name!r} needs a sandbox of verifiers, which burnish has not")
    if library("verifiers.v1.utils.decorators").discover_decorated(found, "intercept"):
        raise ValueError(f"tasks of {name!r} have @intercept methods, which need a harness of verifiers")
    trace = library("verifiers.v1.trace").Trace
    for hook in found.hooks("stop"):
        if session.hook_boundary(hook, allow_trace=True) is not trace:
            raise ValueError(f"the @stop method {hook.__name__} of {name!r} reads a request; burnish gives it a Trace")
