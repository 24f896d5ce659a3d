"""Conversion of option values (from flags, YAML, keyword arguments) to the types in signatures."""

from __future__ import annotations

import inspect
import math
import os
import re
import types
import typing
from typing import Any

from burnish.core.option import typed

TRUE, FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
LARGEST = 2**63 - 1  # the largest int that tensors, seeds and the run store hold


def coerce(key: str, value: Any, wanted: Any) -> Any:
    """The value converted to the type `wanted`; raise ValueError if it has another, or is outside of the type's range.

    NaN is never valid. Infinity is valid where the type's Option says so ("no limit").
    """
    plain, option = typed(wanted)
    if option.bare:
        on = truth(value) if isinstance(value, str) else value
        value = option.bare if on is True else option.choices[0] if on is False else value
    converted = _coerced(key, value, plain)
    if option.unlimited and converted == math.inf and isinstance(value, str) and "inf" not in value.lower():
        raise ValueError(f"option {key!r} is {converted}; it must be a finite number")  # 1e999 is a typing error
    option.check(key, converted)
    return converted


def _coerced(key: str, value: object, wanted: object) -> object:
    choices = (
        typing.get_args(wanted)
        if isinstance(wanted, types.UnionType) or typing.get_origin(wanted) is typing.Union
        else (wanted,)
    )
    if value is None or (isinstance(value, str) and value.lower() == "none"):
        if type(None) in choices:
            return None
        raise ValueError(f"option {key!r} cannot be empty; it takes {_kind(wanted)}")
    if isinstance(value, str) and "\0" in value:
        raise ValueError(f"option {key!r} has a NUL character in it; leave it out")
    for kind in choices:
        if kind in (Any, inspect.Parameter.empty) or _is(value, kind):
            return value
        converted = _convert(value, kind)
        if converted is not None:
            return converted
    raise ValueError(f"option {key!r} takes {_kind(wanted)}, not {_shown(value)}")


def truth(text: str) -> bool | None:
    """The boolean that a word stands for; None for any other word."""
    word = text.lower()
    return True if word in TRUE else False if word in FALSE else None


def _is(value: Any, kind: Any) -> bool:
    """Whether a value has the type already; a bool is not an int, and neither is a number beyond LARGEST."""
    origin = typing.get_origin(kind) or kind
    has_type: bool = isinstance(origin, type) and isinstance(value, origin)
    if not has_type:
        return False
    return kind is not int or (not isinstance(value, bool) and abs(value) <= LARGEST)


def _convert(value: object, kind: object) -> object:
    if kind is bool and isinstance(value, str):
        return truth(value)
    if kind is int and isinstance(value, (str, float)):
        return _whole(value)
    if kind is float and isinstance(value, (str, int)) and not isinstance(value, bool):
        return _float(value)
    return str(value) if kind is str and isinstance(value, (int, float, os.PathLike)) else None


def _whole(value: str | float) -> int | None:
    """An int: exact if written in digits; 1e6 and 2.0 are also accepted."""
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,30}\s*", value):
        whole = int(value)
    else:
        number = _float(value)
        if number is None or not number.is_integer():
            return None
        whole = int(number)
    return whole if abs(whole) <= LARGEST else None


def _float(value: Any) -> float | None:
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _shown(value: Any) -> str:
    """A value for an error message, shortened to about 80 characters."""
    try:
        text = " ".join(repr(value).split())
    except (ValueError, RecursionError):  # Python does not convert ints of more than 4300 digits to text
        return f"such a large {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


def _kind(wanted: object) -> str:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "none"}
    kinds = typing.get_args(wanted) or (wanted,)
    return " or ".join(words.get(kind, str(kind)) for kind in kinds)
