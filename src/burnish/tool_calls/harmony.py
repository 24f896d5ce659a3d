"""The format of gpt-oss, called harmony: a reply is messages with channels, and a call is a message to a function.

    <|channel|>analysis<|message|>thoughts<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather
    <|constrain|>json<|message|>{"city": "Paris"}<|call|>

analysis is reasoning; final, and commentary that names no function, is what the reply says.
"""

from __future__ import annotations

import re

from burnish.tool_calls.call import ReadReply, ToolCall, call_with

MARKS = tuple(f"<|{name}|>" for name in ("start", "channel", "constrain", "message", "end", "call", "return"))
_TO = re.compile(r"\bto=([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")


def read_harmony(text: str) -> ReadReply:
    """<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|> (gpt-oss)"""
    if "<|message|>" not in text:
        return ReadReply("" if "<|channel|>" in text else text)
    said: list[str] = []
    thought: list[str] = []
    calls: list[ToolCall] = []
    header = ""
    body: str | None = ""
    for piece in re.split(r"(<\|message\|>|<\|end\|>|<\|call\|>|<\|return\|>|<\|start\|>)", text):
        if piece == "<|message|>":
            body = None
        elif piece in MARKS:
            header = ""
            continue
        elif header and body is None:
            body = piece
            _take(header, body, said, thought, calls)
        else:
            header = piece
    return ReadReply("\n\n".join(said), tuple(calls), "\n\n".join(thought))


def _take(header: str, body: str, said: list[str], thought: list[str], calls: list[ToolCall]) -> None:
    """Put a message where it belongs."""
    to, channel = _TO.search(header), _CHANNEL.search(header)
    if to is not None and to[1].startswith("functions."):
        calls.append(call_with(to[1].removeprefix("functions."), body.strip()))
    elif to is not None:  # a builtin tool: python or browser.search
        named = "<|constrain|>json" in header or body.strip().startswith("{")
        calls.append(call_with(to[1], body.strip()) if named else ToolCall(to[1], {"code": body}))
    elif channel is not None and channel[1] == "analysis":
        thought.append(body)
    else:
        said.append(body)
