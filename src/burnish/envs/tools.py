"""Tools: functions that a model calls by writing a call, and the environment in which it does so.

    def search(query: str, most: int = 3) -> str:
        "Search the corpus."

    burnish train grpo --task questions.jsonl --tools my_tools.py:search

The schema of a tool comes from its signature and docstring, in the form that chat templates take. A reply without a
call ends the episode: it is the answer, which the task's verifier judges.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import re
import types
import typing
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from burnish.core.messages import Message
from burnish.envs.protocol import Outcome
from burnish.util.failures import said

TAG = "tools"  # of a trace whose last reply is the answer, after calls of tools
LONGEST = 4_000  # characters of a tool's output that the model reads
_JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}
_TAGGED = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)  # Hermes, Qwen
_LISTED = re.compile(r"\[TOOL_CALLS\]\s*(\[.*\])", re.DOTALL)  # Mistral
_NAMED = re.compile(  # Mistral since 2025
    r"\[TOOL_CALLS\]\s*([\w.-]+)\s*(?:\[CALL_ID\]\s*(\w+)\s*)?\[ARGS\](.*?)(?=\[TOOL_CALLS\]|\Z)", re.DOTALL
)
_ID = re.compile(r"[A-Za-z0-9]{9}")  # what Mistral's templates take for the id of a call
_PYTHON_TAG = "<|python_tag|>"  # Llama 3


@dataclass(frozen=True)
class ToolCall:
    """A call that a model wrote. problem: why it cannot be made; empty where it can. id: as the model gave it."""

    name: str
    arguments: Mapping[str, Any]
    problem: str = ""
    id: str = ""


@dataclass(frozen=True)
class Tool:
    """A function with the schema under which a model knows it."""

    name: str
    function: Callable[..., Any]
    schema: Mapping[str, Any]

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Tool:
        """A tool from a function with annotated parameters and a docstring."""
        name = getattr(function, "__name__", type(function).__name__)
        try:
            parameters_of = inspect.signature(function).parameters
        except (TypeError, ValueError):
            raise ValueError(f"the tool {name!r} does not say its parameters; write a function around it") from None
        hints = _hints(function)
        properties, required = {}, []
        for key, parameter in parameters_of.items():
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise ValueError(f"the tool {name!r} takes {key!r} by its place only; calls name their arguments")
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise ValueError(f"the tool {name!r} has the parameter *{key}, which no schema can say; name them all")
            properties[key] = {"type": _json_type(hints.get(key, str))}
            if parameter.default is parameter.empty:
                required.append(key)
        described = inspect.getdoc(function) or name
        parameters = {"type": "object", "properties": properties, "required": required}
        schema = {"name": name, "description": described, "parameters": parameters}
        return cls(name, function, {"type": "function", "function": schema})

    def check(self, arguments: Mapping[str, Any]) -> str:
        """What is wrong with the arguments of a call; empty where nothing is."""
        parameters = self.schema["function"]["parameters"]
        unknown = [key for key in arguments if key not in parameters["properties"]]
        missing = [key for key in parameters["required"] if key not in arguments]
        if unknown:
            return f"{self.name} has no argument {unknown[0]!r}; it has {', '.join(parameters['properties']) or 'none'}"
        return f"{self.name} needs the argument {missing[0]!r}" if missing else ""


def _hints(function: Callable[..., object]) -> Mapping[str, object]:
    """The annotations of a function, but for those that name what is not there, or are no types at all."""
    found: dict[str, object] = {}
    for key, annotation in getattr(function, "__annotations__", {}).items():
        alone = type("Alone", (), {"__annotations__": {key: annotation}})
        with contextlib.suppress(Exception):  # evaluating an annotation runs the user's code
            found |= typing.get_type_hints(alone, getattr(inspect.unwrap(function), "__globals__", None))
    return found


def _json_type(annotation: object) -> str:
    """The JSON type of an annotation; "string" for one that JSON does not have. int | None is an integer."""
    inside = [one for one in typing.get_args(annotation) if one is not type(None)]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType) and len(inside) == 1:
        return _json_type(inside[0])
    kind = typing.get_origin(annotation) or annotation
    return _JSON_TYPES.get(kind, "string") if isinstance(kind, type) else "string"


def parse_calls(text: str) -> list[ToolCall]:
    """The calls in a reply, in the formats of Hermes and Qwen, Mistral, and Llama 3 (JSON alone, or after its tag).

    A call that is not JSON, or has no name, is one with a problem; text without any call has none.
    """
    if tagged := _TAGGED.findall(text):
        return [_call(piece) for piece in tagged]
    if "<tool_call>" in text:
        return [ToolCall("", {}, "the call is not closed by </tool_call>")]
    if named := _NAMED.findall(text):
        return [_with_arguments(name, arguments, number) for name, number, arguments in named]
    if listed := _LISTED.search(text):
        return _calls(listed[1])
    bare = text.strip()
    if bare.startswith(_PYTHON_TAG):
        return [_call(bare.removeprefix(_PYTHON_TAG))]
    if bare.startswith("{") and bare.endswith("}") and '"name"' in bare:
        return [_call(bare)]
    return []


class ToolEnv:
    """A conversation with tools: calls are answered by their outputs, a reply without a call ends it, unrewarded.

    Several calls of one reply are made in order. A tool that raises answers with the error: the model may try again.
    """

    foreign = True  # tools are the user's code: they run under the time limit of an environment

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self.made = self.failed = 0

    def reset(self) -> str:
        """The prompt is the task's own."""
        return ""

    def fork(self) -> ToolEnv:
        """A copy with the same tools. What the tools themselves remember is shared."""
        found = ToolEnv(list(self._tools.values()))
        found.made, found.failed = self.made, self.failed
        return found

    def tools(self) -> list[Mapping[str, Any]]:
        """The schemas, for the chat template."""
        return [tool.schema for tool in self._tools.values()]

    def step(self, action: str) -> Outcome:
        """Make the calls of a reply."""
        calls = parse_calls(action)
        if not calls:
            return Outcome(terminated=True)
        return Outcome(tuple(self._answer(call) for call in calls))

    def _answer(self, call: ToolCall) -> Message:
        self.made += 1
        found = self._made(call)
        return {
            "role": "tool",
            "name": call.name or "tool",
            "tool_call_id": call.id or call_id(self.made, ""),
            "content": found,
        }

    def _made(self, call: ToolCall) -> str:
        tool = self._tools.get(call.name)
        unknown = f"there is no tool {call.name!r}; there is {', '.join(self._tools)}"
        problem = call.problem or (unknown if tool is None else tool.check(call.arguments))
        if problem or tool is None:
            self.failed += 1
            return f"error: {problem}"
        try:
            found = tool.function(**call.arguments)
            text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, default=str)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the model's arguments may be anything
            self.failed += 1
            return f"error: {type(error).__name__}: {said(error)[:300]}"
        return text if len(text) <= LONGEST else text[:LONGEST] + f"\n[{len(text) - LONGEST} more characters]"


def _calls(text: str) -> list[ToolCall]:
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError):
        return [ToolCall("", {}, "the calls are not valid JSON")]
    return [_read(one) for one in listed] if isinstance(listed, list) and listed else [_read(listed)]


def _call(text: str) -> ToolCall:
    try:
        return _read(json.loads(text))
    except (ValueError, RecursionError):
        return ToolCall("", {}, "the call is not valid JSON")


def _read(given: Any) -> ToolCall:
    if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
        return ToolCall("", {}, 'a call is {"name": ..., "arguments": {...}}')
    arguments = given.get("arguments", given.get("parameters", {}))
    return _with_arguments(given["name"], arguments, str(given.get("id", "")))


def _with_arguments(name: str, arguments: object, number: str) -> ToolCall:
    number = number if _ID.fullmatch(number) else ""
    if isinstance(arguments, str):  # some models write them as JSON in a string
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = None
    if not isinstance(arguments, Mapping):
        return ToolCall(name, {}, f"the arguments of {name[:40]} are not an object", number)
    return ToolCall(name, arguments, id=number)


def call_id(number: int, text: str) -> str:
    """An id for a call that has none: nine letters and digits, as Mistral's templates want them."""
    return uuid.uuid5(uuid.NAMESPACE_OID, f"{number} {text}").hex[:9]
