"""Whether a reply of an agent is an action that its environment knows: format, name, arguments.

The environment's actions are patterns, and the values of their slots may be listed:

    actions  ["go to {place}", "take {item} from {place}", "look"]
    slots    {"place": ["kitchen", "cellar"], "item": ["lamp"]}

A reply thinks and then acts:

    Thought: the lamp must be in the cellar
    Action: go to cellar

Actions may also be calls of tools, whose JSON schemas are given (envs/tools.py reads calls in several formats).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from burnish.envs.tools import Tool, parse_calls

LONGEST = 500  # characters of an action; a longer one is none
_REPLY = re.compile(r"\s*Thought:(?P<thought>.*?)\n\s*Action:(?P<action>.*)", re.DOTALL)
_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Fault:
    """What is wrong with a reply. kind: format, name or arguments; reason: in one sentence, for the agent to read."""

    kind: str
    reason: str


def check_action(reply: str, actions: Sequence[str], slots: Mapping[str, Sequence[str]] | None = None) -> Fault | None:
    """The fault of a reply in the format "Thought: ... Action: ...", by patterns of actions; None where it has none.

    Case and repeated spaces do not count. A slot without listed values takes any words.
    """
    read = _REPLY.fullmatch(reply)
    if read is None or not read["thought"].strip():
        return Fault("format", "the reply must have a line 'Thought: ...' and then a line 'Action: ...'")
    said = " ".join(read["action"].split())
    if not said or "\n" in read["action"].strip() or len(said) > LONGEST:
        return Fault("format", "the action must be one short line after 'Action:'")
    nearest: Fault | None = None
    for pattern in actions:
        fault = _against(said, pattern, slots or {})
        if fault is None:
            return None
        if fault.kind == "arguments" and nearest is None:
            nearest = fault
    known = ", ".join(repr(pattern) for pattern in actions)
    return nearest or Fault("name", f"there is no action {said[:60]!r}; there is {known}")


def check_calls(reply: str, tools: Sequence[Mapping[str, object]]) -> Fault | None:
    """The fault of a reply that calls tools, by their JSON schemas; a reply without a call has none."""
    known = {tool.name: tool for tool in map(_tool, tools)}
    for call in parse_calls(reply):
        if call.name not in known:
            reason = call.problem or f"there is no tool {call.name!r}; there is {', '.join(known)}"
            return Fault("format" if call.problem else "name", reason)
        wrong = call.problem or known[call.name].check(call.arguments)
        if wrong:
            return Fault("arguments", wrong)
    return None


def _against(said: str, pattern: str, slots: Mapping[str, Sequence[str]]) -> Fault | None:
    """The fault of an action by one pattern: another name, or arguments that do not fit."""
    name = _SLOT.split(pattern)[0].strip().lower()
    if name and said.lower() != name and not said.lower().startswith(f"{name} "):
        return Fault("name", f"the action {said[:60]!r} is not {pattern!r}")
    pieces = _SLOT.split(pattern)
    wanted = "".join(
        "(.+?)" if i % 2 else r"\s+".join(re.escape(word) for word in re.split(r"\s+", piece))
        for i, piece in enumerate(pieces)
    )
    read = re.fullmatch(wanted, said, re.IGNORECASE)
    if read is None:
        return Fault("arguments", f"the action {said[:60]!r} does not have the form {pattern!r}")
    for slot, value in zip(pieces[1::2], read.groups(), strict=True):
        allowed = slots.get(slot)
        if allowed is not None and value.lower() not in {str(one).lower() for one in allowed}:
            there = ", ".join(map(str, allowed))
            return Fault("arguments", f"there is no {slot} {value!r}; there is {there or 'none'}")
    return None


def _tool(schema: Mapping[str, Any]) -> Tool:
    inner = dict(schema.get("function", schema))
    parameters = dict(inner.get("parameters") or {})
    whole = {"properties": {}, "required": [], **parameters}
    return Tool(str(inner.get("name", "")), lambda: None, {"function": {**inner, "parameters": whole}})
