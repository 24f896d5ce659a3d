"""Schemas of tools from their annotations, and arguments checked and coerced by a schema.

    def search(query: str, kind: Literal["title", "text"] = "text", most: int | None = None) -> str: ...

Annotations become JSON Schema: Optional, Literal and Enum (enum), lists with their items, dicts, defaults, and what the
docstring says under Args. Models of pydantic, dataclasses and TypedDicts need pydantic, which writes and reads theirs.
A model may write 3 as "3": what a schema makes plain is coerced, anything else is refused in a sentence that it reads.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import importlib
import inspect
import json
import math
import re
import types
import typing
from collections.abc import Callable, Hashable, Mapping, Sequence

from burnish.util.failures import said
from burnish.util.untrusted import parse_json

Schema = dict[str, object]
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}
_LISTS = (list, tuple, set, frozenset, Sequence)
_DEEPEST = 32  # schemas inside of each other
_SECTION = re.compile(r"^\s*(?:Args|Arguments|Parameters):\s*$")
_ARGUMENT = re.compile(r"^(\s+)(\*{0,2}\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_SPHINX = re.compile(r"^\s*:param\s+(?:[^:]*\s)?(\w+):\s*(.*)$", re.MULTILINE)


def parameters_of(function: Callable[..., object], name: str) -> tuple[dict[str, Schema], list[str]]:
    """The schemas of a function's parameters by name, and those that are required; ValueError where it takes others."""
    try:
        parameters = dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        raise ValueError(f"the tool {name!r} does not say its parameters; write a function around it") from None
    hints, notes = hints_of(function), argument_notes(inspect.getdoc(function) or "")
    schemas: dict[str, Schema] = {}
    required = []
    for key, parameter in parameters.items():
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ValueError(f"the tool {name!r} takes {key!r} by its place only; calls name their arguments")
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ValueError(f"the tool {name!r} has the parameter *{key}, which no schema can say; name them all")
        schemas[key] = schema_of(hints.get(key, str))
        if key in notes:
            schemas[key]["description"] = notes[key]
        if parameter.default is parameter.empty:
            required.append(key)
        elif isinstance(parameter.default, str | int | float | bool | list | dict) and _is_json(parameter.default):
            schemas[key]["default"] = parameter.default
    return schemas, required


def hints_of(function: Callable[..., object]) -> dict[str, object]:
    """The annotations of a function, but for those that name what is not there, or are no types at all."""
    hints: dict[str, object] = {}
    for key, annotation in getattr(function, "__annotations__", {}).items():
        alone = type("Alone", (), {"__annotations__": {key: annotation}})
        with contextlib.suppress(Exception):  # evaluating an annotation runs the user's code
            names = getattr(inspect.unwrap(function), "__globals__", None)
            hints |= typing.get_type_hints(alone, names, include_extras=True)
    return hints


def schema_of(annotation: object, depth: int = 0) -> Schema:
    """The JSON Schema of an annotation; "string" for one that JSON does not have."""
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if depth > _DEEPEST:
        return {}
    if origin is typing.Annotated:
        told = next((one for one in inside[1:] if isinstance(one, str)), None)
        schema = (
            schema_of(inside[0], depth + 1) if told else _by_pydantic(annotation) or schema_of(inside[0], depth + 1)
        )
        return {**schema, "description": told} if told else schema
    if annotation is None or annotation is type(None):
        return {"type": "null"}
    if annotation is typing.Any or annotation is object:
        return {}
    if origin in (typing.Union, types.UnionType):
        return _union([schema_of(one, depth + 1) for one in inside])
    if origin is typing.Literal:
        return _listed(list(inside))
    kind = origin or annotation
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _listed([one.value for one in kind])
    if kind in _LISTS:
        items = [one for one in inside if one is not Ellipsis]
        schema = {"type": "array"}
        return {**schema, "items": _union([schema_of(one, depth + 1) for one in items])} if items else schema
    if kind in (dict, Mapping):
        values = schema_of(inside[1], depth + 1) if len(inside) == 2 else {}
        return {"type": "object", **({"additionalProperties": values} if values else {})}
    if isinstance(kind, type) and kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    return _by_pydantic(annotation) or {"type": "string"}


def reader_of_values(annotation: object) -> Callable[[object], object] | None:
    """What makes a Python value of a JSON one, where the annotation needs it: enums, tuples, sets, models."""
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return reader_of_values(inside[0])
    kind = origin or annotation
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind
    if origin in (typing.Union, types.UnionType):
        made = [reader for one in inside if (reader := reader_of_values(one)) is not None]
        others = any(one is type(None) for one in inside)
        return (lambda value: None if value is None and others else made[0](value)) if made else None
    if kind in (tuple, set, frozenset) and isinstance(kind, type):
        return lambda value: kind(value) if isinstance(value, list) else value
    if not isinstance(kind, Hashable):
        return None
    if kind in _PLAIN or kind in _LISTS or kind in (dict, Mapping, typing.Literal, typing.Any, object):
        inner = [one for one in inside if _by_pydantic(one)] if kind in (*_LISTS, dict, Mapping) else []
        return _validator(annotation) if inner else None
    return _validator(annotation) if _by_pydantic(annotation) else None


def coerced(value: object, schema: object, where: str, defs: Mapping[str, object] | None = None) -> object:
    """A JSON value as a schema wants it; raises ValueError with what is wrong, in one clause."""
    if not isinstance(schema, Mapping):
        return value
    defs = defs if defs is not None else _mapping(schema.get("$defs", schema.get("definitions")))
    if isinstance(reference := schema.get("$ref"), str):
        return coerced(value, _mapping(defs).get(reference.rpartition("/")[2], {}), where, defs)
    for key in ("anyOf", "oneOf"):
        if isinstance(options := schema.get(key), list) and options:
            return _one_of(value, options, where, defs)
    wanted = schema.get("type")
    if isinstance(wanted, list):
        return _one_of(value, [{**schema, "type": one} for one in wanted], where, defs)
    if isinstance(allowed := schema.get("enum", [schema["const"]] if "const" in schema else None), list):
        return _member(value, allowed, where)
    value = _as_type(value, wanted, where)
    _check_bounds(value, schema, where)
    if isinstance(value, list):
        return [coerced(one, schema.get("items"), f"{where}[{i}]", defs) for i, one in enumerate(value)]
    return _as_object(value, schema, where, defs) if isinstance(value, dict) else value


def argument_notes(text: str) -> dict[str, str]:
    """What a docstring says of each parameter, in the style of Google (Args:) or Sphinx (:param name:)."""
    notes = {name: told.strip() for name, told in _SPHINX.findall(text)}
    inside, name, indent = False, "", 0
    for line in text.splitlines():
        if _SECTION.match(line):
            inside, name = True, ""
        elif inside and line.strip() and not line[0].isspace():
            inside = False
        elif inside and (match := _ARGUMENT.match(line)) and (not name or len(match[1]) <= indent):
            name, indent = match[2].lstrip("*"), len(match[1])
            notes[name] = match[3].strip()
        elif inside and name and line.strip():
            notes[name] = f"{notes[name]} {line.strip()}".strip()
    return notes


def described(text: str) -> str:
    """A docstring without what it says of parameters: the schema has that."""
    kept: list[str] = []
    inside = False
    for line in text.splitlines():
        if _SECTION.match(line):
            inside = True
        elif inside and line.strip() and not line[0].isspace():
            inside = False
        if not inside and not _SPHINX.match(line):
            kept.append(line)
    return "\n".join(kept).strip()


# ------------------------------------------------------------------------------------------------------------ schemas


def _union(options: list[Schema]) -> Schema:
    """The schema of what one of several allows; a union of plain types is written as `anyOf`."""
    different = [one for i, one in enumerate(options) if one not in options[:i]]
    return different[0] if len(different) == 1 else {"anyOf": list(different)}


def _listed(values: list[object]) -> Schema:
    kinds = {_PLAIN.get(type(value)) for value in values}
    kind = kinds.pop() if len(kinds) == 1 else None
    return {"enum": values, **({"type": kind} if kind else {})}


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _by_pydantic(annotation: object) -> Schema | None:
    """The schema that pydantic writes of its models, dataclasses and TypedDicts; None without it, or of others."""
    inner = typing.get_args(annotation)[0] if typing.get_origin(annotation) is typing.Annotated else annotation
    known = hasattr(inner, "__pydantic_core_schema__") or dataclasses.is_dataclass(inner) or typing.is_typeddict(inner)
    if not known and typing.get_origin(annotation) is not typing.Annotated:
        return None
    try:
        return dict(importlib.import_module("pydantic").TypeAdapter(annotation).json_schema())
    except Exception:  # not installed, or a type that it does not know
        return None


def _validator(annotation: object) -> Callable[[object], object]:
    adapter = importlib.import_module("pydantic").TypeAdapter(annotation)

    def read(value: object) -> object:
        try:
            result: object = adapter.validate_python(value)
        except Exception as error:  # ValidationError, or what a validator of the user raises
            raise ValueError(" ".join(said(error).split())[:300]) from None
        return result

    return read


# --------------------------------------------------------------------------------------------------------- arguments


def _one_of(value: object, options: list[object], where: str, defs: Mapping[str, object]) -> object:
    """The value as the first option that it fits as it is, or else as the first that it can be coerced to."""
    problems: list[str] = []
    fitting: list[object] = []
    for option in options:
        try:
            read = coerced(value, option, where, defs)
        except ValueError as error:
            problems.append(str(error))
            continue
        if _identical(read, value):
            return read
        fitting.append(read)
    if fitting:
        return fitting[0]
    wanted = [problem.rpartition(" must be ")[2] for problem in problems]
    if all(" must be " in problem for problem in problems):
        raise ValueError(f"{where} is {_shown(value)}, but must be {' or '.join(dict.fromkeys(wanted))}")
    raise ValueError(problems[0] if problems else f"{where} fits no type")


def _member(value: object, allowed: list[object], where: str) -> object:
    for one in allowed:
        if _identical(one, value):
            return one
    for one in allowed:  # 2 for "2", "red" for "Red"
        if str(value).strip().lower() == str(one).strip().lower():
            return one
    raise ValueError(f"{where} is {_shown(value)}, but must be one of {', '.join(map(_shown, allowed))[:300]}")


def _as_type(value: object, wanted: object, where: str) -> object:
    """The value as a plain type of JSON Schema; ones without a type stay as they are."""
    read = {"integer": _integer, "number": _number, "boolean": _boolean, "string": _string, "null": _null}
    if wanted in ("array", "object"):
        kind = list if wanted == "array" else dict
        if isinstance(value, str):
            with contextlib.suppress(ValueError):
                value = parse_json(value)
        if isinstance(value, tuple) and kind is list:
            value = list(value)
        if isinstance(value, Mapping) and kind is dict:
            value = dict(value)
        if not isinstance(value, kind):
            raise ValueError(f"{where} is {_shown(value)}, but must be {'a list' if kind is list else 'an object'}")
        return value
    reader = read.get(wanted) if isinstance(wanted, str) else None
    if reader is None:
        return value
    try:
        return reader(value)
    except (ValueError, OverflowError):
        names = {"integer": "an integer", "number": "a number", "boolean": "true or false", "string": "a text"}
        raise ValueError(f"{where} is {_shown(value)}, but must be {names.get(str(wanted), 'null')}") from None


def _integer(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d{1,100}(?:\.0*)?\s*", value):
        return int(value.strip().partition(".")[0])
    raise ValueError


def _number(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    number = float(value) if isinstance(value, str) and len(value) <= 100 else math.nan
    if not math.isfinite(number):
        raise ValueError
    return number


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ValueError


def _string(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):  # a postcode, a year
        return json.dumps(value)
    raise ValueError


def _null(value: object) -> None:
    if value is not None and str(value).strip().lower() not in ("null", "none"):
        raise ValueError


def _check_bounds(value: object, schema: Mapping[str, object], where: str) -> None:
    least, most = schema.get("minimum"), schema.get("maximum")
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    if isinstance(least, int | float) and value < least:
        raise ValueError(f"{where} is {_shown(value)}, but must be at least {least}")
    if isinstance(most, int | float) and value > most:
        raise ValueError(f"{where} is {_shown(value)}, but must be at most {most}")


def _as_object(
    value: dict[str, object], schema: Mapping[str, object], where: str, defs: Mapping[str, object]
) -> dict[str, object]:
    properties, required = _mapping(schema.get("properties")), schema.get("required")
    for key in required if isinstance(required, list) else ():
        if key not in value:
            raise ValueError(f"{where} lacks {key!r}")
    others = schema.get("additionalProperties")
    unknown = [key for key in value if key not in properties]
    if others is False and unknown:
        raise ValueError(f"{where} has no {unknown[0]!r}; it has {', '.join(properties) or 'nothing'}")
    return {
        key: coerced(one, properties.get(key, others), f"{where}.{key}" if where else key, defs)
        for key, one in value.items()
    }


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _identical(a: object, b: object) -> bool:
    return type(a) is type(b) and a == b


def _shown(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)[:60]
    except (ValueError, RecursionError):
        return type(value).__name__
