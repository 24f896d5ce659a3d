"""Conversations in one form, from OpenAI's role/content, ShareGPT's from/value, and transcripts."""

from __future__ import annotations

import ast
import difflib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from burnish.core.messages import Message, check_message, text_of
from burnish.tasks.data.episodes import REWARD, is_number

_ROLES = {  # in small letters; others stay as they are, for templates that know them
    "human": "user",
    "prompter": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "ai": "assistant",
    "observation": "tool",
    "function": "tool",
    "function_response": "tool",
    "ipython": "tool",
    "function_call": "assistant",
} | {role: role for role in ("system", "user", "assistant", "tool", "developer")}
_KEPT = ("tool_calls", "tool_call_id", "name", "reasoning_content", "thinking")  # what templates read besides
_LISTED = re.compile(r"\s*\[\s*\{")  # how the text of a list of messages begins
_TRANSCRIPT = re.compile(r"\n\n(Human|Assistant):")


def read_messages(value: Sequence[object], where: str) -> tuple[Message, ...]:
    """Messages as {"role", "content"}, with tool calls, and with `train`, `weight` and `reward` where a message has
    them.
    """
    return tuple(_message(message, where) for message in value)


def _message(given: Any, where: str) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise ValueError(f"{where}: a message is not {{'role': text, 'content': text}} but {str(given)[:80]}")
    role = given.get("role", given.get("from"))
    content = given.get("content", given.get("value"))
    found: dict[str, Any] = {key: given[key] for key in _KEPT if given.get(key) is not None}
    if role == "function_call" and isinstance(content, str):  # ShareGPT: the call is the text
        found["tool_calls"], content = [_json_or_text(content)], ""
    if "tool_calls" in found:
        found["tool_calls"] = [_call(call, where) for call in found["tool_calls"]]
        content = "" if content is None else content
    if isinstance(content, list | tuple) and all(isinstance(p, Mapping) and p.get("type") == "text" for p in content):
        content = "".join(str(part.get("text", "")) for part in content)
    parts = isinstance(content, list | tuple) and all(isinstance(p, Mapping) and "type" in p for p in content)
    if not isinstance(role, str) or not (isinstance(content, str) or parts):
        raise ValueError(f"{where}: a message is not {{'role': text, 'content': text}} but {str(given)[:80]}")
    found = {"role": _role(role, where), "content": content, **found}
    try:
        check_message(found)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return found | _weight(given, where) | _reward(given, where)


def _role(named: str, where: str) -> str:
    """The role as templates call it: another library's word for it, or capitals, are the same; slips are refused."""
    found = _ROLES.get(named.strip().lower())
    if found is not None:
        return found
    letters = re.fullmatch(r"[a-z]+", named.strip().lower())  # user_2 is a seat of its own, usr is a slip
    near = difflib.get_close_matches(letters[0], _ROLES, 1, 0.75) if letters else []
    if near:
        raise ValueError(f"{where}: a message has the role {named[:40]!r}; did you mean {near[0]!r}?")
    return named


def _weight(given: Mapping[str, object], where: str) -> dict[str, object]:
    """{"train": False} or {"weight": 0.5} of a message; nothing where it has neither."""
    train, weight = given.get("train"), given.get("weight")
    if train is not None and not isinstance(train, bool | int):
        raise ValueError(f"{where}: 'train' of a message is {train!r}; it is true or false")
    if weight is not None and not (isinstance(weight, int | float) and 0 <= weight < float("inf")):
        raise ValueError(f"{where}: 'weight' of a message is {weight!r}; it is a number of at least 0")
    return ({} if train is None else {"train": bool(train)}) | ({} if weight is None else {"weight": float(weight)})


def _reward(given: Mapping[str, object], where: str) -> dict[str, object]:
    """{"reward": 1.0} of a message; nothing where it has none."""
    reward = given.get(REWARD)
    if reward is None:
        return {}
    if not is_number(reward):
        raise ValueError(f"{where}: 'reward' of a message is {str(reward)[:40]!r}; it is a finite number")
    return {REWARD: float(reward)}


def _call(call: Any, where: str) -> dict[str, Any]:
    """A tool call whose arguments are an object: OpenAI writes them as text, templates want the object."""
    call = without_nulls(_json_or_text(call) if isinstance(call, str) else call)
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ValueError(f"{where}: a tool call has no function with a name but is {str(call)[:80]}")
    arguments = function.get("arguments", {})
    wanted = {"name": function["name"], "arguments": _json_or_text(arguments) if arguments else {}}
    rest = {key: call[key] for key in ("id", "type") if key in call} if function is not call else {}
    return {"type": "function", **rest, "function": wanted}


def read_tools(value: object, where: str) -> list[object]:
    """The tools of a row: a list of JSON schemas, or the JSON text of one."""
    tools = without_nulls(_json_or_text(value))
    if not isinstance(tools, list) or not all(isinstance(tool, Mapping) for tool in tools):
        raise ValueError(f"{where}: 'tools' is not a list of JSON schemas but {str(value)[:80]}")
    return tools


def spelled_messages(value: object, where: str) -> object:
    """A column of messages, whose cells are JSON text where the kind of file has no lists (CSV)."""
    found = said_messages(value)
    if isinstance(found, str) and _LISTED.match(found):
        raise ValueError(f"{where}: the messages are a text that is not valid JSON; write them with json.dumps")
    return found


def said_messages(value: object) -> object:
    """Messages that a cell spells as text (JSON, or what Python prints of a list), and one message as a list of one.
    Anything else as it is.
    """
    if isinstance(value, str) and _LISTED.match(value):
        listed = spelled_list(value)
        return listed if isinstance(listed, list) and listed and all(map(_is_message, listed)) else value
    return [value] if _is_message(value) else value


def spelled_list(value: object) -> object:
    """A list that a cell spells as text, as JSON or as Python prints it; anything else as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        pass
    try:
        found = ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return value
    return found if isinstance(found, list) else value


def _is_message(value: object) -> bool:
    return isinstance(value, Mapping) and (
        {"role", "content"} <= value.keys()
        or {"from", "value"} <= value.keys()
        or {"role", "tool_calls"} <= value.keys()
    )


def _json_or_text(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def without_nulls(value: object) -> object:
    """The same without keys that are null: Parquet gives every object the keys of all."""
    if isinstance(value, Mapping):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list | tuple) else value


def conversation(value: object, where: str) -> tuple[Message, ...] | None:
    """A whole conversation: a message list, or a transcript "\\n\\nHuman: ...\\n\\nAssistant: ..."; else None."""
    if isinstance(value, list | tuple):
        return read_messages(value, where)
    if isinstance(value, str) and value.lstrip().startswith("Human:"):
        pieces = _TRANSCRIPT.split("\n\n" + value.lstrip())[1:]
        return tuple(
            {"role": _ROLES[who.lower()], "content": said.strip()}
            for who, said in zip(pieces[::2], pieces[1::2], strict=True)
        )
    return None


def reply_of(value: object, where: str) -> str:
    """The text of a reply: itself, or the last of a conversation, whatever the user says after it."""
    if found := conversation(value, where):
        return text_of(next((one for one in reversed(found) if one["role"] == "assistant"), found[-1]))
    if not isinstance(value, str):
        raise ValueError(f"{where}: a reply is not text but {type(value).__name__}; make it text or chat messages")
    return value
