"""JSON encoding that keeps tuples and the types of dict keys."""

from __future__ import annotations

from typing import Any

from burnish.util.json_types import Json

_TUPLE, _PAIRS = "__tuple__", "__pairs__"


def encode(value: object) -> Json:
    """The value as JSON-able data; other objects become text."""
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, tuple):
        return {_TUPLE: [encode(item) for item in value]}
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        if all(type(key) is str and key not in (_TUPLE, _PAIRS) for key in value):
            return {key: encode(item) for key, item in value.items()}
        return {_PAIRS: [[encode(key), encode(item)] for key, item in value.items()]}
    return str(value)


def decode(value: object) -> Any:
    """The inverse of `encode`."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if isinstance(value, dict):
        if _TUPLE in value:
            return tuple(decode(item) for item in value[_TUPLE])
        if _PAIRS in value:
            return {decode(key): decode(item) for key, item in value[_PAIRS]}
        return {key: decode(item) for key, item in value.items()}
    return value
