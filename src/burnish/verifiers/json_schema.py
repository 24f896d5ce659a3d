"""The part of JSON Schema that says what a value looks like."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from burnish.verifiers.checks import BadRow

_TYPES: dict[str, Callable[[object], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: isinstance(value, int | float) and _number(value) and float(value).is_integer(),
    "number": lambda value: _number(value),
}
_BOUNDS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {  # keyword -> (what it measures, holds)
    "minimum": ("number", lambda value, bound: value >= bound),
    "maximum": ("number", lambda value, bound: value <= bound),
    "exclusiveMinimum": ("number", lambda value, bound: value > bound),
    "exclusiveMaximum": ("number", lambda value, bound: value < bound),
    "minLength": ("string", lambda value, bound: len(value) >= bound),
    "maxLength": ("string", lambda value, bound: len(value) <= bound),
    "minItems": ("array", lambda value, bound: len(value) >= bound),
    "maxItems": ("array", lambda value, bound: len(value) <= bound),
    "minProperties": ("object", lambda value, bound: len(value) >= bound),
    "maxProperties": ("object", lambda value, bound: len(value) <= bound),
}
_SAY_NOTHING = {"$schema", "$id", "$comment", "title", "description", "default", "examples", "format"}
_KNOWN = {"type", "properties", "required", "items", "enum", "const", "additionalProperties", "anyOf", "pattern"}
DEEPEST = 50


def check_schema(schema: object, depth: int = 0) -> None:
    """Raise BadRow for a schema with keywords that are not known: a reply must not pass because one is ignored."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping) or depth > DEEPEST:
        raise BadRow(f"a schema is an object of at most {DEEPEST} levels, not {schema!r:.60}")
    for key in schema:
        if key not in _KNOWN | _BOUNDS.keys() | _SAY_NOTHING:
            raise BadRow(
                f"the schema keyword {key!r} is not known; known are {', '.join(sorted(_KNOWN | _BOUNDS.keys()))}"
            )
    for name in _listed(schema.get("type", [])):
        if name not in _TYPES:
            raise BadRow(f"the schema has the type {name!r}; the types are {', '.join(_TYPES)}")
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", [])]
    inner += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    for one in inner:
        check_schema(one, depth + 1)


def mismatch(value: object, schema: object, where: str = "the value") -> str:
    """Why a JSON value does not satisfy a schema, in words; nothing if it does."""
    if not isinstance(schema, Mapping):
        return "" if schema else f"{where} is not allowed"
    kinds = _listed(schema.get("type", []))
    if kinds and not any(_TYPES[kind](value) for kind in kinds):
        return f"{where} is not of type {' or '.join(kinds)}"
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        return f"{where} is none of the values in the enum"
    if "const" in schema and not _same(value, schema["const"]):
        return f"{where} is not the constant"
    for keyword, (kind, holds) in _BOUNDS.items():
        if keyword in schema and _TYPES[kind](value) and not holds(value, schema[keyword]):
            return f"{where} does not keep {keyword} {schema[keyword]}"
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        return f"{where} does not match the pattern"
    if "anyOf" in schema and all(mismatch(value, one, where) for one in schema["anyOf"]):
        return f"{where} satisfies none of anyOf"
    return _inside(value, schema, where)


def _inside(value: object, schema: Mapping[str, Any], where: str) -> str:
    if isinstance(value, list) and "items" in schema:
        return next(filter(None, (mismatch(v, schema["items"], f"item {i}") for i, v in enumerate(value))), "")
    if not isinstance(value, dict):
        return ""
    if missing := [key for key in schema.get("required", []) if key not in value]:
        return f"{where} has no key {missing[0]!r}"
    properties = schema.get("properties", {})
    for key, item in value.items():
        inner = properties.get(key, schema.get("additionalProperties", True))
        if problem := mismatch(item, inner, f"{key[:40]!r}"):
            return problem
    return ""


def _same(a: object, b: object) -> bool:
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _listed(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list | tuple) else [str(value)]
