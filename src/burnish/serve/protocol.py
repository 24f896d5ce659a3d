"""The OpenAI protocol of chat completions: what a request asks, and the JSON of its answer, whole or streamed.

Token ids are returned as `prompt_token_ids` and, in the choice, `token_ids`. Tool calls are read from the text of a
reply (tool_calls).
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from burnish.core.messages import Message, check_message
from burnish.envs.tool_schema import coerced
from burnish.serve.asked import MOST_TOP, Answered, Asked, BadRequest, Piece
from burnish.serve.deltas import Deltas, parts_of
from burnish.serve.options import read_count, read_format, read_object, read_options, read_tools, tool_choice
from burnish.serve.pictures import with_references
from burnish.tool_calls import ToolCall, call_id
from burnish.util.json_types import JsonObject
from burnish.util.untrusted import parse_json

MOST_MESSAGES = 10_000
THOUGHTS = ("reasoning_content", "reasoning")  # keys of a message: the thoughts before what it says


def read_request(body: bytes) -> Asked:
    """The request for a chat completion in a body; raises BadRequest."""
    given = read_object(body)
    messages = given.get("messages")
    if not isinstance(messages, list) or not messages or len(messages) > MOST_MESSAGES:
        raise BadRequest(f"messages must be a list of 1 to {MOST_MESSAGES} messages")
    asked = read_options(given)
    listed, choice = read_tools(given.get("tools")), given.get("tool_choice")
    if isinstance(choice, Mapping):
        choice = choice["function"].get("name") if isinstance(choice.get("function"), Mapping) else choice.get("name")
    top = given.get("top_logprobs")
    return replace(
        asked,
        messages=tuple(read_message(message) for message in messages),
        tools=listed,
        tool_choice=tool_choice(choice, listed),
        one_call=given.get("parallel_tool_calls") is False,
        logprobs=bool(given.get("logprobs")),
        top=read_count(given, "top_logprobs", 0, MOST_TOP) or 0 if top is not None else 0,
        schema=read_format(given.get("response_format")),
    )


def completion(answers: Sequence[Answered], asked: Asked) -> JsonObject:
    """The JSON of a whole answer."""
    choices = []
    for i, answered in enumerate(answers):
        message, reason = assistant_message(answered, asked)
        choice: JsonObject = {"index": i, "message": message, "finish_reason": reason, "token_ids": answered.tokens}
        if asked.logprobs:
            choice["logprobs"] = {"content": token_logprobs(answered)}
        choices.append(choice)
    head = {**_head(asked, "chat.completion", answers[0].id), "choices": choices, "usage": usage_of(answers)}
    return head | {"prompt_token_ids": answers[0].prompt}


def chunks(items: Iterable[Piece | Answered], asked: Asked) -> Iterator[JsonObject]:
    """The JSON of the pieces of a streamed answer, as they come."""
    head = _head(asked, "chat.completion.chunk", f"chatcmpl-{uuid.uuid4().hex}")
    answers: list[Answered] = []
    so_far: dict[int, Deltas] = {}

    def piece(index: int, delta: JsonObject, end: str | None = None) -> JsonObject:
        return {**head, "choices": [{"index": index, "delta": delta, "finish_reason": end}]}

    for item in items:
        index = item.index
        if index not in so_far:
            so_far[index] = Deltas(asked)
            yield piece(index, {"role": "assistant", "content": ""})
        for key, text in so_far[index].of(item):
            yield piece(index, {key: text})
        if isinstance(item, Answered):
            answers.append(item)
            message, reason = assistant_message(item, asked)
            if message.get("tool_calls"):
                yield piece(index, {"tool_calls": [{"index": i, **c} for i, c in enumerate(message["tool_calls"])]})
            yield piece(index, {}, reason) | {"usage": usage_of(answers), "token_ids": item.tokens}
    if asked.stream_usage:
        yield {**head, "choices": [], "usage": usage_of(answers)}


def token_logprobs(answered: Answered) -> list[JsonObject]:
    """The log-prob of each token, and the likeliest ones in its place where they were asked for."""
    tops = answered.tops or [[]] * len(answered.tokens)
    return [
        {
            "token": p,
            "logprob": x,
            "bytes": list(p.encode("utf-8", "replace")),
            "top_logprobs": [{"token": q, "logprob": y, "bytes": list(q.encode("utf-8", "replace"))} for q, y in top],
        }
        for p, x, top in zip(answered.pieces, answered.logps, tops, strict=True)
    ]


def assistant_message(answered: Answered, asked: Asked) -> tuple[JsonObject, str]:
    """The message of a reply, with the tool calls that it makes where tools were offered, and why it stopped."""
    reason = "length" if answered.stopped == "length" else "stop"
    parts = parts_of(answered, asked)
    thoughts = {"reasoning_content": parts.reasoning} if parts.reasoning else {}
    if not parts.calls:
        return {"role": "assistant", "content": parts.content, **thoughts}, reason
    made = [
        {
            "id": call.id or call_id(i, answered.text),
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(_typed(call, asked), ensure_ascii=False)},
        }
        for i, call in enumerate(parts.calls)
    ]
    return {"role": "assistant", "content": parts.content or None, **thoughts} | {"tool_calls": made}, "tool_calls"


def _typed(call: ToolCall, asked: Asked) -> dict[str, object]:
    """The arguments of a call as the schema of its tool has them, where they can be read so: XML has only texts."""
    given = dict(call.arguments)
    functions = (tool.get("function") for tool in asked.tools)
    named = [one.get("parameters") for one in functions if isinstance(one, Mapping) and one.get("name") == call.name]
    schema: Mapping[str, object] = next((one for one in named if isinstance(one, Mapping)), {})
    properties, defs = schema.get("properties"), schema.get("$defs")
    for key, value in given.items():
        if not isinstance(properties, Mapping):
            break
        with contextlib.suppress(ValueError):  # the client's own check says what is wrong
            given[key] = coerced(value, properties.get(key), key, defs if isinstance(defs, Mapping) else {})
    return given


def _head(asked: Asked, kind: str, name: str) -> JsonObject:
    created = int(time.time())
    return {"id": name, "object": kind, "created": created, "model": asked.model or "burnish"}


def usage_of(answers: Sequence[Answered]) -> dict[str, int]:
    """How many tokens were read and written."""
    read, written = len(answers[0].prompt) if answers else 0, sum(len(answered.tokens) for answered in answers)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def read_message(given: Any) -> Message:
    """A message as chat templates take it: text parts joined, arguments of tool calls as objects."""
    if not isinstance(given, Mapping) or not isinstance(given.get("role"), str):
        raise BadRequest('a message must be an object with "role" and "content"')
    message = {key: value for key, value in given.items() if value is not None}
    content = given.get("content")
    message["content"] = "" if content is None else content
    if message.get("tool_calls"):
        if not isinstance(message["tool_calls"], list):
            raise BadRequest("tool_calls of a message must be a list of calls")
        message["tool_calls"] = [_with_object(call) for call in message["tool_calls"]]
    if message["role"] == "developer":
        message["role"] = "system"
    try:
        message["content"] = with_references(message["content"])
        check_message(message)
    except ValueError as error:
        raise BadRequest(str(error)) from None
    return message


def _with_object(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        return {**call, "function": {**function, "arguments": parse_json(function["arguments"])}}
    except ValueError:
        return call


def said_texts(messages: Sequence[Message]) -> list[str]:
    """The messages as texts that can be compared, whatever form their parts have; clients may drop thoughts."""
    kept = [{key: value for key, value in message.items() if key not in THOUGHTS} for message in messages]
    return [json.dumps(message, sort_keys=True, ensure_ascii=False, default=str) for message in kept]
