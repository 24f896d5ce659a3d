"""Tools: functions that a model calls by writing a call, and the environment in which it does so.

    def search(query: str, most: int = 3) -> str:
        "Search the corpus."

    burnish train grpo --task questions.jsonl --tools my_tools.py:search

The schema of a tool comes from its signature and docstring (envs/tool_schema.py), in the form that chat templates take.
A reply without a call ends the episode: it is the answer, which the task's verifier judges. How calls are written is
the model's format (tool_calls/table.py).

A class is a set of tools with a state: each episode has an instance of its own, whose methods are the tools.

    class Notebook:
        def write(self, text: str) -> str: "Write a line."
        def read(self) -> str: "Read all lines."

    burnish train grpo --task questions.jsonl --tools my_tools.py:Notebook
"""

from __future__ import annotations

import inspect
import json
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from burnish.core.messages import Message, well_formed
from burnish.envs.guarded import in_loop
from burnish.envs.protocol import Outcome, reset_arguments
from burnish.envs.tool_schema import coerced, described, hints_of, parameters_of, reader_of_values
from burnish.tool_calls import AUTO_READER, Reader, ToolCall, call_id, parse_calls
from burnish.util.failures import said
from burnish.util.pending import Pending
from burnish.util.threads import in_thread

__all__ = ["LONGEST", "TAG", "Tool", "ToolCall", "ToolEnv", "parse_calls"]

TAG = "tools"  # of a trace whose last reply is the answer, after calls of tools
LONGEST = 4_000  # characters of a tool's output that the model reads
MOST_CALLS = 32  # of one reply that are made
_NO_TOOLS = ("close", "fork", "reset", "tools")  # methods of a class of tools that a model cannot call


@dataclass(frozen=True)
class Tool:
    """A function with the schema under which a model knows it.

    values  what makes Python values of JSON ones, by the names of arguments (enums, models of pydantic)
    owner   the class whose method it is: each episode makes an instance, and its calls are made one after the other
    """

    name: str
    function: Callable[..., Any]
    schema: Mapping[str, Any]
    values: Mapping[str, Callable[[object], object]] = field(default_factory=dict)
    owner: Callable[..., Any] | None = None

    @classmethod
    def of(cls, function: Callable[..., object]) -> Tool:
        """A tool from a function with annotated parameters and a docstring."""
        name = getattr(function, "__name__", type(function).__name__)
        properties, required = parameters_of(function, name)
        about = described(inspect.getdoc(function) or "") or name
        parameters = {"type": "object", "properties": properties, "required": required}
        schema = {"name": name, "description": about, "parameters": parameters}
        readers = {key: reader_of_values(hint) for key, hint in hints_of(function).items() if key in properties}
        values = {key: reader for key, reader in readers.items() if reader is not None}
        return cls(name, function, {"type": "function", "function": schema}, values)

    @classmethod
    def all_of(cls, owner: type) -> list[Tool]:
        """The tools that a class is: its methods with a docstring, but for those that begin with _."""
        found: list[Tool] = []
        for name in (name for kind in reversed(owner.__mro__) for name in vars(kind)):
            method = inspect.getattr_static(owner, name)
            if name.startswith("_") or name in _NO_TOOLS or not inspect.isfunction(method) or not method.__doc__:
                continue
            if name not in (tool.name for tool in found):
                tool = cls.of(partial_of(method, name))
                found.append(cls(tool.name, method, tool.schema, tool.values, owner))
        if not found:
            raise ValueError(f"the class {owner.__name__!r} has no method with a docstring, so it has no tools")
        return found

    def check(self, arguments: Mapping[str, object]) -> str:
        """What is wrong with the arguments of a call; empty where nothing is."""
        try:
            self.read(arguments)
        except ValueError as error:
            return str(error)
        return ""

    def read(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """The arguments of a call as the function takes them; raises ValueError with what is wrong."""
        parameters = self.schema["function"]["parameters"]
        properties = parameters.get("properties") or {}
        unknown = [key for key in arguments if key not in properties]
        missing = [key for key in parameters.get("required") or () if key not in arguments]
        if unknown and not parameters.get("additionalProperties"):
            raise ValueError(f"{self.name} has no argument {unknown[0]!r}; it has {', '.join(properties) or 'none'}")
        if missing:
            raise ValueError(f"{self.name} needs the argument {missing[0]!r}")
        defs = parameters.get("$defs", parameters.get("definitions"))
        read: dict[str, object] = {}
        for key, value in arguments.items():
            read[key] = coerced(value, properties.get(key), f"{self.name}: {key}", _defs(properties.get(key), defs))
            if key in self.values:
                try:
                    read[key] = self.values[key](read[key])
                except Exception as error:  # noqa: BLE001 - a class of the user refuses a value
                    raise ValueError(f"{self.name}: {key}: {said(error)[:200]}") from None
        return read


def _defs(schema: object, defs: object) -> Mapping[str, object]:
    own = schema.get("$defs") if isinstance(schema, Mapping) else None
    return {**(defs if isinstance(defs, Mapping) else {}), **(own if isinstance(own, Mapping) else {})}


def partial_of(method: Callable[..., object], name: str) -> Callable[..., object]:
    """A method as a function of its arguments besides self, for its schema."""
    signature = inspect.signature(method)

    def alone(**arguments: object) -> object:
        raise AssertionError("made for its signature alone")

    alone.__name__, alone.__doc__ = name, method.__doc__
    alone.__annotations__ = {key: value for key, value in method.__annotations__.items() if key != "return"}
    alone.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])  # type: ignore[attr-defined]
    alone.__wrapped__ = method  # type: ignore[attr-defined]  # annotations are names in its module
    return alone


class ToolEnv:
    """A conversation with tools: calls are answered by their outputs, a reply without a call ends it, unrewarded.

    Several calls of one reply are made at the same time, those of a class of tools one after the other. A tool that
    raises, or has not answered after `seconds`, answers with the error: the model may try again.

    row: the row of the task, for classes of tools that take `task`
    """

    foreign = True  # tools are the user's code: they run under the time limit of an environment

    def __init__(
        self, tools: Sequence[Tool], seconds: float | None = None, row: Mapping[str, Any] | None = None
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self.seconds, self._row = seconds, row
        self._reader = AUTO_READER
        self._owners: dict[Callable[..., Any], Any] = {}
        self._stuck: set[Callable[..., Any]] = set()
        self.made = self.failed = 0

    def reset(self, task: object = None, seed: int = 0, reader: Reader | None = None) -> str:
        """The prompt is the task's own. reader: of the replies of the model that plays."""
        self._reader = reader or AUTO_READER
        for owner in {tool.owner for tool in self._tools.values() if tool.owner is not None}:
            self._owners[owner] = owner(**reset_arguments(owner, self._row if task is None else task, seed))
        return ""

    @property
    def fork(self) -> Callable[[], ToolEnv] | None:
        """A method that copies it with the same tools; None where they have a state, which is played again instead."""
        return None if any(tool.owner for tool in self._tools.values()) else self._forked

    def _forked(self) -> ToolEnv:
        found = ToolEnv(list(self._tools.values()), self.seconds, self._row)
        found.made, found.failed, found._reader = self.made, self.failed, self._reader
        return found

    def tools(self) -> list[Mapping[str, object]]:
        """The schemas, for the chat template."""
        return [tool.schema for tool in self._tools.values()]

    def close(self) -> None:
        """Close the instances of classes of tools that have close()."""
        for one in self._owners.values():
            if callable(getattr(one, "close", None)):
                in_loop(closing) if inspect.iscoroutine(closing := one.close()) else None

    def step(self, action: str) -> Outcome:
        """Make the calls of a reply."""
        calls = self._reader.read(action).calls
        if not calls:
            return Outcome(terminated=True)
        return Outcome(tuple(map(self._message, calls, self._answers(calls))))

    def _answers(self, calls: Sequence[ToolCall]) -> list[str]:
        """What each call gives. Calls of functions run at the same time."""
        pending: list[Pending | str] = []
        for i, call in enumerate(calls):
            tool = self._tools.get(call.name)
            if (problem := self._problem(call, tool, i)) or tool is None:
                pending.append(f"error: {problem}")
            elif tool.owner is None and (len(calls) > 1 or self.seconds is not None):
                pending.append(_begun(partial(_called, tool, tool.read(call.arguments))))
            else:
                pending.append(self._in_order(tool, call))
        due = time.monotonic() + (self.seconds or math.inf)
        answers = [
            one if isinstance(one, str) else self._wait(one, call, due)
            for one, call in zip(pending, calls, strict=True)
        ]
        self.failed += sum(answer.startswith("error: ") for answer in answers)
        return answers

    def _problem(self, call: ToolCall, tool: Tool | None, number: int) -> str:
        if number >= MOST_CALLS:
            return f"a reply may make {MOST_CALLS} calls"
        unknown = f"there is no tool {call.name[:80]!r}; there is {', '.join(self._tools)}"
        return call.problem or (unknown if tool is None else tool.check(call.arguments))

    def _in_order(self, tool: Tool, call: ToolCall) -> str:
        """The answer of a call, before the next one is made."""
        owner = tool.owner
        if owner in self._stuck:
            return f"error: {tool.name} cannot be called: an earlier call has not ended"
        instance = () if owner is None else (self._owners[owner],)
        run = partial(_called, tool, tool.read(call.arguments), *instance)
        if self.seconds is None:
            return _shortened(run())
        pending = _begun(run)
        answer = self._wait(pending, call, time.monotonic() + self.seconds)
        if owner is not None and not pending.done:
            self._stuck.add(owner)
        return answer

    def _wait(self, pending: Pending, call: ToolCall, due: float) -> str:
        try:
            return _shortened(str(pending.result(min(max(0.0, due - time.monotonic()), 1e6))))
        except TimeoutError:
            return f"error: {call.name} had not answered after {self.seconds:g} s"

    def _message(self, call: ToolCall, answer: str) -> Message:
        self.made += 1
        return {
            "role": "tool",
            "name": call.name or "tool",
            "tool_call_id": call.id or call_id(self.made, ""),
            "content": answer,
        }


def _begun(call: Callable[[], str]) -> Pending:
    """Run a call, which raises nothing, in a thread."""
    pending = Pending()
    in_thread(lambda: pending.finish(call()))
    return pending


def _called(tool: Tool, arguments: Mapping[str, object], *instance: object) -> str:
    """What a tool answers, or the error that it raised."""
    try:
        found = tool.function(*instance, **arguments)
        if inspect.isawaitable(found):
            found = in_loop(_awaited(found))
        return str(well_formed(found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, default=str)))
    except BaseException as error:  # noqa: BLE001 - the model's arguments may be anything, and so may be the tool
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise  # Ctrl-C
        return f"error: {type(error).__name__}: {well_formed(said(error)[:300])}"


async def _awaited(found: Any) -> Any:
    return await found


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + f"\n[{len(text) - LONGEST} more characters]"
