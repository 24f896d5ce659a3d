"""The OpenAI Responses API, /v1/responses: items in place of messages.

Items become the messages of a chat and back: a function_call is a tool call of the assistant's message before it, a
function_call_output the message of the tool. Reasoning items are left out, as templates leave earlier thoughts out;
what was sampled stays in the conversation's tokens. `previous_response_id` goes on from an answer of the same session.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from burnish.serve.asked import MOST_TOP, Answered, Asked, BadRequest, Piece
from burnish.serve.deltas import Deltas
from burnish.serve.options import read_count, read_format, read_object, read_options, read_tools, tool_choice
from burnish.serve.protocol import MOST_MESSAGES, assistant_message, read_message, token_logprobs, usage_of
from burnish.util.json_types import JsonObject

KEPT = 4096  # answers of a session that a request can go on from
Kept = dict[str, list[Any]]  # the messages up to an answer and with it, by its id


def read_request(body: bytes, kept: Kept) -> Asked:
    """The request for a response in a body; raises BadRequest."""
    given = read_object(body)
    asked = read_options(given)
    messages = _earlier(given.get("previous_response_id"), kept)
    if isinstance(given.get("instructions"), str):
        messages = [{"role": "system", "content": given["instructions"]}, *messages]
    messages += _messages(given.get("input"))
    if not messages or len(messages) > MOST_MESSAGES:
        raise BadRequest(f"input must be a text, or a list of 1 to {MOST_MESSAGES} items")
    listed = tuple(_tool(tool) for tool in read_tools(given.get("tools")))
    choice = given.get("tool_choice")
    text = given.get("text")
    included = given.get("include") or []
    return replace(
        asked,
        messages=tuple(read_message(message) for message in messages),
        tools=listed,
        tool_choice=tool_choice(choice.get("name") if isinstance(choice, Mapping) else choice, listed),
        one_call=given.get("parallel_tool_calls") is False,
        max_tokens=read_count(given, "max_output_tokens"),
        schema=read_format(text.get("format")) if isinstance(text, Mapping) else None,
        top=read_count(given, "top_logprobs", 0, MOST_TOP) or 0,
        logprobs="message.output_text.logprobs" in included,
    )


def response(answers: Sequence[Answered], asked: Asked, kept: Kept) -> JsonObject:
    """The JSON of a whole answer, which a later request may go on from."""
    answered = answers[0]
    message, _ = assistant_message(answered, asked)
    name = _name(answered)
    if len(kept) >= KEPT:
        kept.clear()
    said = [one for one in asked.messages if one.get("role") != "system"]
    kept[name] = [*said, message]
    cut = answered.stopped == "length"
    return _response(asked, name, "incomplete" if cut else "completed") | {
        "output": _items(answered, asked),
        "usage": _usage(answers),
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "token_ids": answered.tokens,
        "prompt_token_ids": answered.prompt,
    }


def events(items: Iterable[Piece | Answered], asked: Asked, kept: Kept) -> Iterator[JsonObject]:
    """The events of a streamed answer, as its pieces come."""
    number = -1

    def event(kind: str, **more: Any) -> JsonObject:
        nonlocal number
        number += 1
        return {"type": f"response.{kind}", "sequence_number": number, **more}

    begun = _response(asked, f"resp_{uuid.uuid4().hex}", "in_progress") | {"output": []}
    yield event("created", response=begun)
    yield event("in_progress", response=begun)
    text = _Text(asked)
    for item in items:
        for kind, more in text.of(item):
            yield event(kind, **more)
        if isinstance(item, Answered):
            whole = response([item], asked, kept)
            for kind, more in text.ended(whole["output"]):
                yield event(kind, **more)
            yield event("incomplete" if whole["status"] == "incomplete" else "completed", response=whole)


class _Text:
    """The events of the one message that a streamed answer may have, and of its calls at the end."""

    def __init__(self, asked: Asked) -> None:
        self._deltas, self.name, self.open = Deltas(asked), f"msg_{uuid.uuid4().hex}", False
        self._place = {"item_id": self.name, "output_index": 0, "content_index": 0}

    def of(self, item: Piece | Answered) -> Iterator[tuple[str, JsonObject]]:
        for key, text in self._deltas.of(item):
            if key != "content":
                continue
            if not self.open:
                self.open = True
                yield "output_item.added", {"output_index": 0, "item": _message(self.name, "", [], "in_progress")}
                yield "content_part.added", {**self._place, "part": _part("", [])}
            yield "output_text.delta", {**self._place, "delta": text, "logprobs": []}

    def ended(self, output: list[JsonObject]) -> Iterator[tuple[str, JsonObject]]:
        for item in output:
            if item["type"] == "message" and self.open:
                item["id"] = self.name
                part = item["content"][0]
                yield "output_text.done", {**self._place, "text": part["text"], "logprobs": []}
                yield "content_part.done", {**self._place, "part": part}
                yield "output_item.done", {"output_index": 0, "item": item}
        output.sort(key=lambda item: item["type"] != "message")  # the message that was streamed is the first
        for i, item in enumerate(output):
            if item["type"] == "message" and self.open:
                continue
            yield "output_item.added", {"output_index": i, "item": item}
            if item["type"] == "function_call":
                place = {"item_id": item["id"], "output_index": i}
                yield "function_call_arguments.delta", {**place, "delta": item["arguments"]}
                yield "function_call_arguments.done", {**place, "name": item["name"], "arguments": item["arguments"]}
            yield "output_item.done", {"output_index": i, "item": item}


def _earlier(name: object, kept: Kept) -> list[Any]:
    if name is None:
        return []
    if not isinstance(name, str) or name not in kept:
        raise BadRequest(f"previous_response_id {str(name)[:80]!r} is not known here; send the whole input")
    return list(kept[name])


def _messages(given: object) -> list[JsonObject]:
    """The messages that items are."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if given is None:
        return []
    if not isinstance(given, list) or not all(isinstance(item, Mapping) for item in given):
        raise BadRequest("input must be a text or a list of items")
    messages: list[JsonObject] = []
    for item in given:
        kind = item.get("type", "message")
        if kind == "message":
            messages.append({"role": item.get("role"), "content": _content(item.get("content"))})
        elif kind == "function_call":
            _add_call(messages, item)
        elif kind == "function_call_output":
            answer = {"role": "tool", "tool_call_id": str(item.get("call_id", ""))}
            messages.append({**answer, "content": _content(item.get("output"))})
        elif kind != "reasoning":
            raise BadRequest(f"an item of input has the type {str(kind)[:60]!r}, which is not supported")
    return messages


def _add_call(messages: list[JsonObject], item: Mapping[str, Any]) -> None:
    """A call belongs to the assistant's message before it."""
    function = {"name": item.get("name"), "arguments": item.get("arguments")}
    call = {"id": item.get("call_id"), "type": "function", "function": function}
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    messages[-1].setdefault("tool_calls", []).append(call)


def _content(given: object) -> object:
    """Text, where the parts are nothing but text."""
    if not isinstance(given, list):
        return "" if given is None else given if isinstance(given, str) else json.dumps(given)
    texts = [part.get("text", part.get("refusal")) if isinstance(part, Mapping) else None for part in given]
    if not all(isinstance(text, str) for text in texts):
        raise BadRequest("a part of a message has no text; pictures, sounds and files are not supported")
    return "".join(map(str, texts))


def _tool(tool: Mapping[str, Any]) -> JsonObject:
    """A tool as chat templates take it."""
    if tool.get("type") != "function" or not isinstance(tool.get("name"), str):
        raise BadRequest(f"a tool has the type {str(tool.get('type'))[:40]!r}; only functions are supported")
    about = {"name": tool["name"], "description": tool.get("description") or "", "parameters": tool.get("parameters")}
    return {"type": "function", "function": {key: value for key, value in about.items() if value is not None}}


def _items(answered: Answered, asked: Asked) -> list[JsonObject]:
    """The items of an answer."""
    message, _ = assistant_message(answered, asked)
    output: list[JsonObject] = []
    if thoughts := message.get("reasoning_content"):
        content = [{"type": "reasoning_text", "text": thoughts}]
        output.append({"id": f"rs_{uuid.uuid4().hex}", "type": "reasoning", "summary": [], "content": content})
    if message["content"] or not message.get("tool_calls"):
        logs = token_logprobs(answered) if asked.logprobs else []
        done = "incomplete" if answered.stopped == "length" else "completed"
        output.append(_message(f"msg_{uuid.uuid4().hex}", message["content"] or "", logs, done))
    for call in message.get("tool_calls", ()):
        name = {"id": f"fc_{uuid.uuid4().hex}", "type": "function_call", "status": "completed"}
        output.append({**name, "call_id": call["id"], **call["function"]})
    return output


def _message(name: str, text: str, logs: list[JsonObject], status: str) -> JsonObject:
    content = [_part(text, logs)] if status != "in_progress" else []
    return {"id": name, "type": "message", "role": "assistant", "status": status, "content": content}


def _part(text: str, logs: list[JsonObject]) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logs}


def _response(asked: Asked, name: str, status: str) -> JsonObject:
    tools = [{"type": "function", "strict": False, "parameters": {}, **tool["function"]} for tool in asked.tools]
    choice: object = asked.tool_choice
    if asked.tool_choice not in ("auto", "none", "required"):
        choice = {"type": "function", "name": asked.tool_choice}
    return {
        "id": name,
        "object": "response",
        "created_at": int(time.time()),
        "status": status,
        "model": asked.model or "burnish",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": not asked.one_call,
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "tool_choice": choice,
        "tools": tools,
    }


def _usage(answers: Sequence[Answered]) -> JsonObject:
    used = usage_of(answers)
    return {
        "input_tokens": used["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": used["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": used["total_tokens"],
    }


def _name(answered: Answered) -> str:
    return f"resp_{answered.id.removeprefix('chatcmpl-')}"
