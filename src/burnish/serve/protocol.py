"""The OpenAI protocol of chat completions: what a request asks, and the JSON of its answer, whole or streamed.

Token ids are returned as `prompt_token_ids` and, in the choice, `token_ids`. Tool calls are read from the text of a
reply (tool_calls).
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from burnish.core.messages import Message, check_message, well_formed
from burnish.envs.tool_schema import coerced
from burnish.serve.pictures import with_references
from burnish.tool_calls import AUTO_READER, Reader, ToolCall, call_id
from burnish.util.untrusted import parse_json

MOST_MESSAGES = 10_000
MODEL_CHARACTERS = 200  # of the model's name, which answers repeat
THOUGHTS = ("reasoning_content", "reasoning")  # keys of a message: the thoughts before what it says
COLDEST = 1e-5  # a lower temperature is 0: the likeliest token is all that has weight, and 1e-38 divides to infinity
NEUTRAL = {"n": 1, "response_format": {"type": "text"}, "stop": []}  # values of options that are not supported
UNSUPPORTED = ("n", "presence_penalty", "frequency_penalty", "logit_bias", "response_format", "stop")


class BadRequest(ValueError):
    """A request that cannot be answered: why, in one sentence."""


@dataclass(frozen=True)
class Asked:
    """A request for a completion. None: the server's own setting."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stream: bool = False
    logprobs: bool = False
    model: str = ""


@dataclass(frozen=True)
class Answered:
    """A completion: its text, why it stopped, its tokens and their log-probs, and the tokens of its prompt.

    reader: how the model's replies are read
    """

    text: str
    stopped: str
    tokens: list[int]
    logps: list[float]
    prompt: list[int]
    pieces: list[str]
    reader: Reader = AUTO_READER


@dataclass(frozen=True)
class Failure:
    """Why a question has no answer: the HTTP status, and a sentence."""

    status: int
    why: str


def failure(error: Exception) -> Failure:
    """What an exception says to the client whose request raised it; a ValueError's sentence was written for it."""
    if isinstance(error, ValueError) and not isinstance(error, ArithmeticError):  # not NaN in the model's numbers
        return Failure(400, str(error))
    return Failure(500, f"the request could not be answered ({type(error).__name__}: {str(error)[:300]})")


def read_request(body: bytes) -> Asked:
    """The request in a body; raises BadRequest."""
    try:
        given = well_formed(parse_json(body))
    except ValueError as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from None
    if not isinstance(given, dict):
        raise BadRequest("the body is not a JSON object")
    messages = given.get("messages")
    if not isinstance(messages, list) or not messages or len(messages) > MOST_MESSAGES:
        raise BadRequest(f"messages must be a list of 1 to {MOST_MESSAGES} messages")
    for key in UNSUPPORTED:
        if given.get(key) not in (None, 0, {}, NEUTRAL.get(key)):
            raise BadRequest(f"{key} is {str(given[key])[:60]}, which is not supported; leave it out")
    return Asked(
        tuple(read_message(message) for message in messages),
        _tools(given.get("tools")),
        _temperature(given),
        _number(given, "top_p", 0.0, 1.0),
        _count(given.get("max_completion_tokens", given.get("max_tokens"))),
        bool(given.get("stream")),
        bool(given.get("logprobs")),
        str(given.get("model", ""))[:MODEL_CHARACTERS],
    )


def completion(answered: Answered, asked: Asked) -> dict[str, Any]:
    """The JSON of a whole answer."""
    message, reason = assistant_message(answered, asked)
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": reason, "token_ids": answered.tokens}
    if asked.logprobs:
        pairs = zip(answered.pieces, answered.logps, strict=True)
        choice["logprobs"] = {"content": [{"token": p, "logprob": x, "top_logprobs": []} for p, x in pairs]}
    return {**_head(asked, "chat.completion"), "choices": [choice], "usage": _usage(answered)} | {
        "prompt_token_ids": answered.prompt
    }


def chunks(answered: Answered, asked: Asked) -> Iterator[dict[str, Any]]:
    """The JSON of the pieces of a streamed answer."""
    message, reason = assistant_message(answered, asked)
    head = _head(asked, "chat.completion.chunk")

    def piece(delta: dict[str, Any], end: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}

    yield piece({"role": "assistant", "content": ""})
    if message.get("tool_calls"):
        yield piece({"tool_calls": [{"index": i, **call} for i, call in enumerate(message["tool_calls"])]})
    if message["content"]:
        yield piece({"content": message["content"]})
    yield piece({}, reason) | {"usage": _usage(answered), "token_ids": answered.tokens}


def assistant_message(answered: Answered, asked: Asked) -> tuple[dict[str, Any], str]:
    """The message of a reply, with the tool calls that it makes where tools were offered, and why it stopped."""
    reason = "length" if answered.stopped == "length" else "stop"
    reply = answered.reader.read(answered.text)
    thinks = answered.reader.thinks and reply.reasoning
    thoughts = {"reasoning_content": reply.reasoning} if thinks else {}
    calls = [call for call in reply.calls if not call.problem] if asked.tools else []
    if not calls:
        content = answered.text
        if thinks:
            content = reply.content if not reply.calls else answered.reader.answer(answered.text)
        return {"role": "assistant", "content": content.strip() if thinks else content, **thoughts}, reason
    made = [
        {
            "id": call.id or call_id(i, answered.text),
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(_typed(call, asked), ensure_ascii=False)},
        }
        for i, call in enumerate(calls)
    ]
    before = reply.content.strip() or None
    return {"role": "assistant", "content": before, **thoughts} | {"tool_calls": made}, "tool_calls"


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


def _head(asked: Asked, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": asked.model or "burnish",
    }


def _usage(answered: Answered) -> dict[str, int]:
    read, written = len(answered.prompt), len(answered.tokens)
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


def _tools(given: Any) -> tuple[Mapping[str, Any], ...]:
    listed = given or []
    if not isinstance(listed, list) or not all(isinstance(tool, Mapping) for tool in listed):
        raise BadRequest('tools must be a list of objects such as {"type": "function", "function": {...}}')
    return tuple(listed)


def _with_object(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        return {**call, "function": {**function, "arguments": parse_json(function["arguments"])}}
    except ValueError:
        return call


def _temperature(given: Mapping[str, Any]) -> float | None:
    value = _number(given, "temperature", 0.0, 10.0)
    return 0.0 if value is not None and value < COLDEST else value


def _number(given: Mapping[str, Any], key: str, least: float, most: float) -> float | None:
    value = given.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise BadRequest(f"{key} is {str(value)[:60]}; it must be between {least:g} and {most:g}")
    return float(value)


def _count(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadRequest(f"max_tokens is {str(value)[:60]}; it must be at least 1")
    return value


def said_texts(messages: Sequence[Message]) -> list[str]:
    """The messages as texts that can be compared, whatever form their parts have; clients may drop thoughts."""
    kept = [{key: value for key, value in message.items() if key not in THOUGHTS} for message in messages]
    return [json.dumps(message, sort_keys=True, ensure_ascii=False, default=str) for message in kept]
