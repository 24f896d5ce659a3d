"""Calls between tags: JSON in them (Hermes, Qwen, Granite, Phi-4, Jamba), or a name and arguments as XML (Qwen3-Coder,
Seed-OSS, GLM-4.5, MiniMax-M2, DeepSeek-V3.2). Values in XML are text: the schema of the tool says what they mean
(envs/tool_schema.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from burnish.tool_calls.call import ReadReply, ToolCall, calls_at, calls_of_json

_FUNCTION = re.compile(r"<function=([^>\n]{1,200})>(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\n]{1,200})>(.*?)(?:</parameter>|(?=<parameter=)|\Z)", re.DOTALL)
_ARGUMENT = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
_INVOKE = re.compile(r'<(｜DSML｜|)invoke name="([^"\n]{1,200})">(.*?)(?:</\1invoke>|\Z)', re.DOTALL)
_INVOKED = re.compile(
    r'<(｜DSML｜|)parameter name="([^"\n]{1,200})"(?: string="(true|false)")?>(.*?)</\1parameter>', re.DOTALL
)


def blocks(text: str, start: str, end: str) -> tuple[str, list[str], bool]:
    """The text before the first block, the blocks, and whether the last one lacks its end tag."""
    before, *pieces = text.split(start)
    inner = [piece.partition(end)[0] for piece in pieces]
    return before, inner, bool(pieces) and end not in pieces[-1]


def read_hermes(text: str) -> ReadReply:
    """<tool_call>{"name": ..., "arguments": {...}}</tool_call>, several one after the other (Hermes, Qwen2.5, Qwen3)"""
    return _in_tags(text, "<tool_call>", "</tool_call>", calls_of_json)


def read_qwen3_coder(text: str) -> ReadReply:
    """<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call> (Qwen3-Coder)"""
    if "<tool_call>" not in text and "<function=" in text:  # the model leaves the outer tag out at times
        return ReadReply(text.partition("<function=")[0].strip(), tuple(_functions(text)))
    return _in_tags(text, "<tool_call>", "</tool_call>", _functions)


def read_seed_oss(text: str) -> ReadReply:
    """<seed:tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></seed:tool_call> (Seed-OSS)"""
    return _in_tags(text, "<seed:tool_call>", "</seed:tool_call>", _functions)


def read_glm(text: str) -> ReadReply:
    """<tool_call>NAME <arg_key>KEY</arg_key> <arg_value>VALUE</arg_value></tool_call> (GLM-4.5 and later)"""
    return _in_tags(text, "<tool_call>", "</tool_call>", _glm)


def read_minimax(text: str) -> ReadReply:
    """<minimax:tool_call><invoke name=NAME><parameter name=KEY>VALUE</parameter></invoke></minimax:tool_call>"""
    return _in_tags(text, "<minimax:tool_call>", "</minimax:tool_call>", _invokes)


def read_granite(text: str) -> ReadReply:
    """<|tool_call|>[{"name": ..., "arguments": {...}}, ...] (Granite 3.0), also with <tool_call> (3.1)"""
    mark = "<|tool_call|>" if "<|tool_call|>" in text else "<tool_call>"
    if mark not in text:
        return ReadReply(text)
    before, _, rest = text.partition(mark)
    return ReadReply(before.strip(), tuple(calls_at(rest)))


def read_phi4(text: str) -> ReadReply:
    """<|tool_call|>[{"name": ..., "arguments": {...}}]<|/tool_call|>, or functools[{...}] (Phi-4-mini)"""
    if "<|tool_call|>" in text:
        return _in_tags(text, "<|tool_call|>", "<|/tool_call|>", calls_at)
    if "functools[" in text:
        before, _, rest = text.partition("functools[")
        return ReadReply(before.strip(), tuple(calls_at("[" + rest)))
    return ReadReply(text)


def read_any_tag(text: str) -> ReadReply:
    """What stands in <tool_call>, in whichever of the formats above it is written."""

    def read(block: str) -> list[ToolCall]:
        if "<function=" in block:
            return _functions(block)
        if "<arg_key>" in block or re.fullmatch(r"\s*[A-Za-z_][\w.-]{0,100}\s*", block):
            return _glm(block)
        return calls_of_json(block)

    if "</tool_call>" not in text and re.match(r"\s*\[", text.partition("<tool_call>")[2]):
        return read_granite(text)
    return _in_tags(text, "<tool_call>", "</tool_call>", read)


def read_dsml(text: str) -> ReadReply:
    """<｜DSML｜function_calls>, <｜DSML｜invoke name=NAME>,
    <｜DSML｜parameter name=KEY string=true>VALUE (DeepSeek V3.2)."""
    return _in_tags(text, "<｜DSML｜function_calls>", "</｜DSML｜function_calls>", _invokes)


def _in_tags(text: str, start: str, end: str, read: Callable[[str], list[ToolCall]]) -> ReadReply:
    before, inner, unclosed = blocks(text, start, end)
    if not inner:
        return ReadReply(text)
    calls = [call for block in (inner[:-1] if unclosed else inner) for call in read(block)]
    if unclosed:
        calls.append(ToolCall("", {}, f"the call is not closed by {end}"))
    return ReadReply(before.strip(), tuple(calls))


def _functions(block: str) -> list[ToolCall]:
    calls = [
        ToolCall(name.strip(), {key.strip(): _trimmed(value) for key, value in _PARAMETER.findall(body)})
        for name, body in _FUNCTION.findall(block)
    ]
    return calls or [ToolCall("", {}, "a call is <function=NAME><parameter=KEY>VALUE</parameter></function>")]


def _glm(block: str) -> list[ToolCall]:
    name = block.partition("<arg_key>")[0].strip()
    if not re.fullmatch(r"[\w.:/-]{1,200}", name):
        return [ToolCall("", {}, "a call is a name, then <arg_key>KEY</arg_key><arg_value>VALUE</arg_value>")]
    return [ToolCall(name, {key.strip(): value for key, value in _ARGUMENT.findall(block)})]


def _invokes(block: str) -> list[ToolCall]:
    calls = []
    for _, name, body in _INVOKE.findall(block):
        arguments: dict[str, object] = {}
        for _, key, is_text, value in _INVOKED.findall(body):
            arguments[key] = value if is_text == "true" else _trimmed(value)
        calls.append(ToolCall(name, arguments))
    return calls or [ToolCall("", {}, "a call is <invoke name=NAME><parameter name=KEY>VALUE</parameter></invoke>")]


def _trimmed(value: str) -> str:
    """A value without the line ends that templates write around it."""
    return value.removeprefix("\n").removesuffix("\n")
