"""The Anthropic Messages API, /v1/messages: blocks in place of messages of tools.

A tool_use block is a tool call of the assistant's message, a tool_result block a message of the tool. Thinking blocks
are left out of earlier messages, as templates leave earlier thoughts out.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from burnish.serve.asked import Answered, Asked, BadRequest, Piece
from burnish.serve.deltas import Deltas
from burnish.serve.options import (
    read_count,
    read_format,
    read_object,
    read_options,
    read_stops,
    read_tools,
    tool_choice,
)
from burnish.serve.protocol import MOST_MESSAGES, assistant_message, read_message, usage_of
from burnish.util.json_types import JsonObject

_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def read_request(body: bytes) -> Asked:
    """The request for a message in a body; raises BadRequest."""
    given = read_object(body)
    listed = given.get("messages")
    if not isinstance(listed, list) or not listed or len(listed) > MOST_MESSAGES:
        raise BadRequest(f"messages must be a list of 1 to {MOST_MESSAGES} messages")
    messages = [one for message in listed for one in _messages(message)]
    if given.get("system"):
        messages = [{"role": "system", "content": _text(given["system"])}, *messages]
    asked = read_options({key: value for key, value in given.items() if key not in ("n", "stop")})
    tools = tuple(_tool(tool) for tool in read_tools(given.get("tools")))
    choice = given.get("tool_choice")
    choice = choice if isinstance(choice, Mapping) else {}
    named = choice.get("name") if choice.get("type") == "tool" else _CHOICES.get(str(choice.get("type", "auto")))
    output = given.get("output_config", given)
    held = output.get("format", output.get("output_format")) if isinstance(output, Mapping) else None
    return replace(
        asked,
        messages=tuple(read_message(message) for message in messages),
        tools=tools,
        tool_choice=tool_choice(named or "?", tools),
        one_call=bool(choice.get("disable_parallel_tool_use")),
        stop=read_stops(given.get("stop_sequences")),
        top_k=read_count(given, "top_k"),
        schema=read_format(held),
    )


def message(answers: Sequence[Answered], asked: Asked) -> JsonObject:
    """The JSON of a whole answer."""
    answered = answers[0]
    blocks, why = _blocks(answered, asked)
    return _message(asked, _name(answered)) | {
        "content": blocks,
        "stop_reason": why,
        "stop_sequence": answered.stopped_by,
        "usage": _usage(answers),
        "token_ids": answered.tokens,
        "prompt_token_ids": answered.prompt,
    }


def events(items: Iterable[Piece | Answered], asked: Asked) -> Iterator[JsonObject]:
    """The events of a streamed answer, as its pieces come."""
    begun = _message(asked, f"msg_{uuid.uuid4().hex}")
    usage = {"input_tokens": 0, "output_tokens": 0}
    yield {"type": "message_start", "message": {**begun, "content": [], "stop_reason": None, "usage": usage}}
    deltas, index, open_ = Deltas(asked), -1, ""
    for item in items:
        for key, text in deltas.of(item):
            kind, field = ("text", "text") if key == "content" else ("thinking", "thinking")
            if kind != open_:
                if open_:
                    yield {"type": "content_block_stop", "index": index}
                open_, index = kind, index + 1
                block = {"type": kind, field: "", **({"signature": ""} if kind == "thinking" else {})}
                yield {"type": "content_block_start", "index": index, "content_block": block}
            yield _delta(index, {"type": f"{kind}_delta", field: text})
        if isinstance(item, Answered):
            if open_:
                yield {"type": "content_block_stop", "index": index}
            blocks, why = _blocks(item, asked)
            for block in blocks:
                if block["type"] == "tool_use":
                    index += 1
                    yield {"type": "content_block_start", "index": index, "content_block": {**block, "input": {}}}
                    yield _delta(index, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])})
                    yield {"type": "content_block_stop", "index": index}
            ended = {"stop_reason": why, "stop_sequence": item.stopped_by}
            yield {"type": "message_delta", "delta": ended, "usage": _usage([item]), "token_ids": item.tokens}
            yield {"type": "message_stop"}


def _delta(index: int, delta: JsonObject) -> JsonObject:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def _messages(given: object) -> list[JsonObject]:
    """The messages of a chat that one message of blocks is: results of tools stand before what a user says."""
    if not isinstance(given, Mapping) or given.get("role") not in ("user", "assistant", "system"):
        raise BadRequest('a message must have the role user or assistant, and "content"')
    content = given.get("content")
    if isinstance(content, str):
        return [{"role": given["role"], "content": content}]
    if not isinstance(content, list) or not all(isinstance(block, Mapping) for block in content):
        raise BadRequest("the content of a message must be a text or a list of blocks")
    calls: list[JsonObject] = []
    results: list[JsonObject] = []
    texts: list[str] = []
    for block in content:
        kind = block.get("type")
        if kind == "text":
            texts.append(_text(block.get("text")))
        elif kind == "tool_use":
            function = {"name": block.get("name"), "arguments": block.get("input") or {}}
            calls.append({"id": block.get("id"), "type": "function", "function": function})
        elif kind == "tool_result":
            told = _text(block.get("content") or "")
            results.append({"role": "tool", "tool_call_id": str(block.get("tool_use_id", "")), "content": told})
        elif kind not in ("thinking", "redacted_thinking"):
            raise BadRequest(f"a block of a message has the type {str(kind)[:40]!r}, which is not supported")
    said = {"role": given["role"], "content": "".join(texts), **({"tool_calls": calls} if calls else {})}
    return [*results, *([said] if texts or calls or not results else [])]


def _text(given: object) -> str:
    """A text, or the texts of blocks."""
    if isinstance(given, str):
        return given
    blocks = given if isinstance(given, list) else [given]
    texts = [block.get("text") if isinstance(block, Mapping) else None for block in blocks]
    if not all(isinstance(text, str) for text in texts):
        raise BadRequest("a block has no text; pictures and documents are not supported")
    return "".join(map(str, texts))


def _tool(tool: Mapping[str, Any]) -> JsonObject:
    """A tool as chat templates take it."""
    if not isinstance(tool.get("name"), str) or not isinstance(tool.get("input_schema"), Mapping):
        raise BadRequest(
            f"the tool {str(tool.get('name'))[:60]!r} has no input_schema; tools of servers are not supported"
        )
    about = {"name": tool["name"], "description": tool.get("description") or "", "parameters": tool["input_schema"]}
    return {"type": "function", "function": about}


def _blocks(answered: Answered, asked: Asked) -> tuple[list[JsonObject], str]:
    """The blocks of an answer, and why it stopped."""
    said, _ = assistant_message(answered, asked)
    blocks: list[JsonObject] = []
    if thoughts := said.get("reasoning_content"):
        blocks.append({"type": "thinking", "thinking": thoughts, "signature": ""})
    if said["content"]:
        blocks.append({"type": "text", "text": said["content"]})
    for call in said.get("tool_calls", ()):
        function = call["function"]
        one = {"type": "tool_use", "id": call["id"], "name": function["name"]}
        blocks.append({**one, "input": json.loads(function["arguments"])})
    if said.get("tool_calls"):
        return blocks, "tool_use"
    if answered.stopped == "length":
        return blocks, "max_tokens"
    return blocks, "end_turn" if answered.stopped_by is None else "stop_sequence"


def _message(asked: Asked, name: str) -> JsonObject:
    head = {"id": name, "type": "message", "role": "assistant", "model": asked.model or "burnish"}
    return {**head, "stop_sequence": None}


def _usage(answers: Sequence[Answered]) -> dict[str, int]:
    used = usage_of(answers)
    return {"input_tokens": used["prompt_tokens"], "output_tokens": used["completion_tokens"]}


def _name(answered: Answered) -> str:
    return f"msg_{answered.id.removeprefix('chatcmpl-')}"
