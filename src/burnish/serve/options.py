"""The options of a request that all protocols share: how replies are sampled, where they end, what they must be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from burnish.core.messages import well_formed
from burnish.serve.asked import Asked, BadRequest, Json
from burnish.util.json_types import JsonObject
from burnish.util.untrusted import parse_json

MODEL_CHARACTERS = 200  # of the model's name, which answers repeat
COLDEST = 1e-5  # a lower temperature is 0: the likeliest token is all that has weight, and 1e-38 divides to infinity
MOST_CHOICES, MOST_STOPS, STOP_CHARACTERS = 128, 16, 200
UNSUPPORTED = ("logit_bias", "audio", "modalities", "functions", "function_call", "web_search_options")
NEUTRAL: dict[str, object] = {"modalities": ["text"], "function_call": "auto", "functions": []}


def read_object(body: bytes) -> JsonObject:
    """The JSON object in a body; raises BadRequest."""
    try:
        given = well_formed(parse_json(body))
    except ValueError as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from None
    if not isinstance(given, dict):
        raise BadRequest("the body is not a JSON object")
    return given


def read_options(given: Mapping[str, Any]) -> Asked:
    """How the replies to a request are sampled; its messages are still to come."""
    for key in UNSUPPORTED:
        if given.get(key) not in (None, 0, {}, NEUTRAL.get(key)):
            raise BadRequest(f"{key} is {str(given[key])[:60]}, which is not supported; leave it out")
    streamed = given.get("stream_options")
    temperature = read_number(given, "temperature", 0.0, 10.0)
    return Asked(
        (),
        temperature=0.0 if temperature is not None and temperature < COLDEST else temperature,
        top_p=read_number(given, "top_p", 0.0, 1.0),
        max_tokens=read_count(given, "max_completion_tokens") or read_count(given, "max_tokens"),
        stream=bool(given.get("stream")),
        model=str(given.get("model") or "")[:MODEL_CHARACTERS],
        n=read_count(given, "n", 1, MOST_CHOICES) or 1,
        stop=read_stops(given.get("stop")),
        seed=read_count(given, "seed", -(1 << 63), 1 << 63),
        presence=read_number(given, "presence_penalty", -2.0, 2.0) or 0.0,
        frequency=read_number(given, "frequency_penalty", -2.0, 2.0) or 0.0,
        stream_usage=isinstance(streamed, Mapping) and bool(streamed.get("include_usage")),
    )


def read_stops(given: object) -> tuple[str, ...]:
    """The strings that end a reply."""
    stops = [given] if isinstance(given, str) else given or []
    if not isinstance(stops, list) or len(stops) > MOST_STOPS:
        raise BadRequest(f"stop must be a text or a list of at most {MOST_STOPS} texts")
    if not all(isinstance(one, str) and 0 < len(one) <= STOP_CHARACTERS for one in stops):
        raise BadRequest(f"a stop string must be a text of 1 to {STOP_CHARACTERS} characters")
    return tuple(stops)


def read_tools(given: object) -> tuple[Mapping[str, Any], ...]:
    """The tools that a request offers."""
    listed = given or []
    if not isinstance(listed, list) or not all(isinstance(tool, Mapping) for tool in listed):
        raise BadRequest('tools must be a list of objects such as {"type": "function", "function": {...}}')
    return tuple(listed)


def names_of(tools: tuple[Mapping[str, Any], ...]) -> list[str]:
    """The names of tools."""
    functions = (tool.get("function") for tool in tools)
    return [str(one.get("name")) for one in functions if isinstance(one, Mapping)]


def tool_choice(given: object, tools: tuple[Mapping[str, Any], ...]) -> str:
    """auto, none, required, or the name of a tool."""
    if given is None or given == "auto":
        return "auto"
    if given == "none":
        return "none"
    if not tools:
        raise BadRequest("tool_choice is given without tools; leave it out, or add tools")
    if given in ("required", "any"):
        return "required"
    if not isinstance(given, str) or given not in names_of(tools):
        raise BadRequest(f"tool_choice is {str(given)[:60]!r}; it must be auto, none, required or one of the tools")
    return given


def read_format(given: object) -> Json | None:
    """What response_format asks a reply to be."""
    if given is None:
        return None
    kind = given.get("type") if isinstance(given, Mapping) else None
    if not isinstance(given, Mapping) or kind not in ("text", "json_object", "json_schema"):
        raise BadRequest("response_format must have the type text, json_object or json_schema")
    if kind == "text":
        return None
    if kind == "json_object":
        return Json()
    inner = given.get("json_schema", given)
    schema = inner.get("schema") if isinstance(inner, Mapping) else None
    if not isinstance(schema, Mapping):
        raise BadRequest('response_format needs {"type": "json_schema", "json_schema": {"name": ..., "schema": {...}}}')
    return Json(schema)


def read_number(given: Mapping[str, Any], key: str, least: float, most: float) -> float | None:
    """A number of a request within its range; None where it is not there."""
    value = given.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise BadRequest(f"{key} is {str(value)[:60]}; it must be between {least:g} and {most:g}")
    return float(value)


def read_count(given: Mapping[str, Any], key: str, least: int = 1, most: int | None = None) -> int | None:
    """A whole number of a request within its range; None where it is not there."""
    value = given.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        wanted = f"at least {least}" if most is None else f"a whole number from {least} to {most}"
        raise BadRequest(f"{key} is {str(value)[:60]}; it must be {wanted}")
    return value
