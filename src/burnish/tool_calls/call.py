"""What a reply says: its thoughts, its text, and the tools that it calls. And calls that are written as JSON."""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from burnish.core.messages import well_formed
from burnish.util.untrusted import check_depth, parse_json

_ID = re.compile(r"[A-Za-z0-9]{9}")  # what Mistral's templates take for the id of a call
_KEYS = frozenset({"name", "arguments", "parameters", "id", "type"})  # of a call that stands alone as JSON
FORM = 'a call is {"name": ..., "arguments": {...}}'


@dataclass(frozen=True)
class ToolCall:
    """A call that a model wrote. problem: why it cannot be made; empty where it can. id: as the model gave it."""

    name: str
    arguments: Mapping[str, object]
    problem: str = ""
    id: str = ""


@dataclass(frozen=True)
class ReadReply:
    """A reply in its parts. content: what it says besides its calls; reasoning: its thoughts, which call nothing."""

    content: str
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""


def call_of(given: object) -> ToolCall:
    """The call that a JSON value is; one with a problem where it is none."""
    inner = given.get("function") if isinstance(given, Mapping) else None
    if isinstance(given, Mapping) and isinstance(inner, Mapping):
        given = {**inner, "id": given.get("id", "")}
    name = given.get("name", given.get("tool_name")) if isinstance(given, Mapping) else None
    if not isinstance(given, Mapping) or not isinstance(name, str):
        return ToolCall("", {}, FORM)
    arguments = given.get("arguments", given.get("parameters", {}))
    number = given.get("id", given.get("tool_call_id", ""))
    return call_with(name, arguments, number if isinstance(number, str) else "")


def call_with(name: str, arguments: object, number: str = "", *, any_id: bool = False) -> ToolCall:
    """A call with these arguments: an object, or its JSON. any_id: ids need not be Mistral's nine letters."""
    number = number if any_id or _ID.fullmatch(number) else ""
    if isinstance(arguments, str):  # some models write them as JSON in a string
        try:
            arguments = parse_json(arguments)
        except ValueError:
            arguments = None
    if not isinstance(arguments, Mapping):
        return ToolCall(name, {}, f"the arguments of {name[:40]} are not an object", number)
    return ToolCall(name, well_formed(arguments), id=number)


def calls_of_json(text: str) -> list[ToolCall]:
    """The calls of a JSON text: an object, or a list of them."""
    try:
        value = parse_json(text)
    except ValueError:
        return [ToolCall("", {}, "the call is not valid JSON")]
    return [call_of(one) for one in value] if isinstance(value, list) and value else [call_of(value)]


def calls_at(text: str) -> list[ToolCall]:
    """The calls of the JSON value that a text begins with; what follows it does not count."""
    try:
        value, _ = json_prefix(text)
    except ValueError:
        return [ToolCall("", {}, "the call is not valid JSON")]
    return [call_of(one) for one in value] if isinstance(value, list) and value else [call_of(value)]


def json_prefix(text: str) -> tuple[object, str]:
    """The JSON value that a text begins with, and what follows it; raises ValueError."""
    stripped = text.lstrip()
    try:
        value, end = _DECODER.raw_decode(stripped)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    check_depth(value)
    return value, stripped[end:]


def alone(value: object) -> bool:
    """Whether a JSON object that is all of a reply is a call, rather than an answer that has a key "name"."""
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str) or not value.keys() <= _KEYS:
        return False
    return isinstance(value.get("arguments", value.get("parameters")), Mapping | str)


def call_id(number: int, text: str) -> str:
    """An id for a call that has none: nine letters and digits, as Mistral's templates want them."""
    return uuid.uuid5(uuid.NAMESPACE_OID, str(well_formed(f"{number} {text}"))).hex[:9]


def _refused(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} overflows")
    return value


_DECODER = json.JSONDecoder(parse_constant=_refused, parse_float=_finite)
