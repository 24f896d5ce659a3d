"""Calls after special tokens: Mistral, DeepSeek-V3 and R1, Kimi-K2, Command."""

from __future__ import annotations

import re

from burnish.tool_calls.call import ReadReply, ToolCall, call_with, calls_at, json_prefix
from burnish.tool_calls.tagged import read_dsml

_NAMED = re.compile(r"\s*([\w.:/-]+)\s*(?:\[CALL_ID\]\s*(\w+)\s*)?(?:\[ARGS\])?\s*(?=[{]|\Z)", re.DOTALL)
_FENCE = re.compile(r"```(?:json)?\s*(.*?)\s*```", re.DOTALL)
DEEPSEEK = tuple(f"<｜tool▁{what}｜>" for what in ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep"))
KIMI = tuple(
    f"<|tool_{what}|>"
    for what in ("calls_section_begin", "calls_section_end", "call_begin", "call_argument_begin", "call_end")
)
COMMAND_THOUGHTS = ("<|START_THINKING|>", "<|END_THINKING|>")
COMMAND = (*COMMAND_THOUGHTS, *(f"<|{side}_{what}|>" for what in ("RESPONSE", "ACTION") for side in ("START", "END")))


def read_mistral(text: str) -> ReadReply:
    """[TOOL_CALLS] [{"name": ..., "arguments": {...}, "id": ...}], since 2025 [TOOL_CALLS]NAME[ARGS]{...} (Mistral)"""
    before, *pieces = text.split("[TOOL_CALLS]")
    if not pieces:
        return ReadReply(text)
    calls: list[ToolCall] = []
    for piece in pieces:
        named = _NAMED.match(piece)
        if piece.lstrip().startswith("["):
            calls += calls_at(piece)
        elif named is None:
            calls.append(ToolCall("", {}, "the calls are not valid JSON"))
        else:
            calls.append(call_with(named[1], _object_at(piece[named.end() :]), named[2] or ""))
    return ReadReply(before.strip(), tuple(calls))


def read_deepseek(text: str) -> ReadReply:
    """<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME, then the arguments in a fence (V3, R1), or
    NAME<｜tool▁sep｜>{...} (V3.1); V3.2 writes <｜DSML｜invoke ...>
    """
    if "<｜DSML｜" in text:
        return read_dsml(text)
    begin, end, first, last, separator = DEEPSEEK
    before, mark, rest = text.partition(begin)
    if not mark:
        return ReadReply(text)
    calls = []
    for piece in rest.partition(end)[0].split(first)[1:]:
        head, _, body = piece.partition(last)[0].partition(separator)
        if head.strip() == "function":
            head, _, body = body.partition("\n")
        fenced = _FENCE.search(body)
        calls.append(call_with(head.strip(), fenced[1] if fenced else body.strip()))
    return ReadReply(before.strip(), tuple(calls) or (ToolCall("", {}, f"a call begins with {first}"),))


def read_kimi(text: str) -> ReadReply:
    """<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{...}<|tool_call_end|> (Kimi-K2)"""
    section, section_end, first, arguments, last = KIMI
    before, mark, rest = text.partition(section)
    if not mark:
        return ReadReply(text)
    calls = []
    for piece in rest.partition(section_end)[0].split(first)[1:]:
        number, _, body = piece.partition(last)[0].partition(arguments)
        name = number.strip().removeprefix("functions.").rpartition(":")
        if not name[0] or not name[2].isdecimal():
            calls.append(ToolCall("", {}, f"the id {number.strip()[:60]!r} is not functions.NAME:NUMBER"))
        else:
            calls.append(call_with(name[0], body.strip(), number.strip(), any_id=True))
    return ReadReply(before.strip(), tuple(calls) or (ToolCall("", {}, f"a call begins with {first}"),))


def read_command(text: str) -> ReadReply:
    """<|START_ACTION|>[{"tool_call_id": ..., "tool_name": ..., "parameters": {...}}]<|END_ACTION|> (Command R7B, A),
    or Action: and the same list in a fence (Command R), where directly_answer calls nothing
    """
    before, mark, rest = text.partition("<|START_ACTION|>")
    if not mark:
        before, mark, rest = text.partition("Action:")
        fenced = _FENCE.search(rest)
        if not mark or fenced is None:
            return ReadReply(_said(text))
        rest = fenced[1]
    calls = [call for call in calls_at(rest) if call.name != "directly_answer"]
    return ReadReply(_said(before), tuple(calls))


def _said(text: str) -> str:
    """The text of a response, without the marks around it."""
    return text.replace("<|START_RESPONSE|>", "").replace("<|END_RESPONSE|>", "").strip()


def _object_at(text: str) -> object:
    try:
        return json_prefix(text)[0]
    except ValueError:
        return None
