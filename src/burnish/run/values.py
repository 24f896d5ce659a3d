"""From what is written (flags, YAML, keyword arguments) to the types that signatures ask for."""

from __future__ import annotations

import inspect
import os
import types
import typing
from typing import Any


def coerce(key: str, value: Any, wanted: Any) -> Any:
    """The value as the type that the signature asks for, or one sentence."""
    choices = (
        typing.get_args(wanted)
        if isinstance(wanted, types.UnionType) or typing.get_origin(wanted) is typing.Union
        else (wanted,)
    )
    if value is None or (isinstance(value, str) and value.lower() == "none"):
        if type(None) in choices:
            return None
        raise ValueError(f"option {key!r} cannot be empty; it takes {_kind(wanted)}")
    for kind in choices:
        if kind in (Any, inspect.Parameter.empty) or (
            isinstance(value, kind) and not (kind in (int, float) and isinstance(value, bool))
        ):
            return value
        converted = _convert(value, kind)
        if converted is not None:
            return converted
    raise ValueError(f"option {key!r} takes {_kind(wanted)}, not {value!r}")


def _convert(value: Any, kind: Any) -> Any:
    if kind is bool and isinstance(value, str) and value.lower() in ("true", "false", "yes", "no", "1", "0"):
        return value.lower() in ("true", "yes", "1")
    if kind is int and isinstance(value, (str, float)):
        number = _float(value)
        return int(number) if number is not None and number.is_integer() else None
    if kind is float and isinstance(value, (str, int)) and not isinstance(value, bool):
        return _float(value)
    return str(value) if kind is str and isinstance(value, (int, float, os.PathLike)) else None


def _float(value: Any) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def _kind(wanted: Any) -> str:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "none"}
    kinds = typing.get_args(wanted) or (wanted,)
    return " or ".join(words.get(kind, str(kind)) for kind in kinds)
