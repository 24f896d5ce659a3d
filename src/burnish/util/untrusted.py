"""Read foreign JSON: a request, a reply, a row, a message of a peer. Any failure is a ValueError.

Text that is small to send can be expensive to handle: 900 brackets exhaust the stack of whatever walks the value
later, long after the parser accepted it. So depth and size are limited here, where the text enters.
"""

from __future__ import annotations

import json
import math

DEEPEST = 64  # levels of lists and objects: four times what chat messages, tool schemas and rows of datasets have
LARGEST = 16 << 20  # characters (bytes of a bytes object)


def parse_json(text: str | bytes, *, largest: int = LARGEST, deepest: int = DEEPEST) -> object:
    """The value of a JSON text; ValueError, as one clause, if it is no JSON, too large, too deep or not finite.

    NaN, infinities and numbers that overflow (1e999) are refused: JSON has none, and they spoil what is computed.
    """
    if len(text) > largest:
        raise ValueError(f"it has {len(text):,} characters; at most {largest:,} are read")
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error.msg} in line {error.lineno}, column {error.colno})") from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None
    except RecursionError:
        raise ValueError(f"it is nested too deeply; at most {deepest} levels are read") from None
    check_depth(value, deepest)
    return value


def check_depth(value: object, deepest: int = DEEPEST) -> None:
    """Raise ValueError if lists and mappings are nested in more than `deepest` levels; uses no recursion."""
    level: list[object] = [value]
    for _ in range(deepest):
        below: list[object] = []
        for one in level:
            if isinstance(one, dict):
                below += [inner for inner in one.values() if isinstance(inner, dict | list | tuple)]
            elif isinstance(one, list | tuple):
                below += [inner for inner in one if isinstance(inner, dict | list | tuple)]
        if not below:
            return
        level = below
    raise ValueError(f"it is nested too deeply; at most {deepest} levels are read")


def _no_constant(name: str) -> object:
    raise ValueError(f"it has {name}, which is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"its number {text[:40]} overflows")
    return value
