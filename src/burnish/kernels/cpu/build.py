"""Our kernels for a CPU (kernels/*.c): built once by the machine's own C compiler, then kept in a private cache
(kernel_cache.py).

They do in one call what takes torch dozens of small operators, and every number they make is the same whatever is
computed beside it. A machine without a C compiler, or whose torch brings another OpenMP than GNU's (two in one process
would fight for the cores),
goes without: torch then does the same work. `$BURNISH_COMPILE=0` says so too; `why_not` says why. `made_by` says which
kernels these are.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

from burnish.kernels.cpu import kernel_cache


class Shape(ctypes.Structure):
    """A model's sizes (kernels/base.h, as are the others)."""

    _fields_ = [
        *((name, ctypes.c_long) for name in ("hidden", "heads", "kv_heads", "width", "inner")),
        ("eps", ctypes.c_float),
        ("scale", ctypes.c_float),
    ]


class View(ctypes.Structure):
    """[tokens, heads, width] somewhere in memory."""

    _fields_ = [("at", ctypes.c_void_p), ("token", ctypes.c_long), ("head", ctypes.c_long)]


class Pack(ctypes.Structure):
    """Rows laid end to end, as trees."""

    _fields_ = [
        ("tokens", ctypes.c_long),
        ("trees", ctypes.c_long),
        ("begins", ctypes.c_void_p),
        ("stretches", ctypes.c_void_p),
        ("known", ctypes.c_void_p),
    ]


class Below(ctypes.Structure):
    """Matrices, one below the other (kernels/product.c)."""

    _fields_ = [("at", ctypes.c_void_p * 3), ("rows", ctypes.c_long * 3)]


class LayerAt(ctypes.Structure):
    """Where the weights of a layer lie, and its keys and values."""

    _fields_ = [
        (name, ctypes.c_void_p)
        for name in (
            *("norm", "read", "out", "inner_norm", "open", "down", "read_bias", "q_norm", "k_norm"),
            *("own_k", "own_v", "roots_k", "roots_v"),
        )
    ]


class KeptAt(ctypes.Structure):
    """Where what a layer's backward needs goes."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("x", "found", "seen", "middle", "both")]


class ModelAt(ctypes.Structure):
    """Where layers and what is around them lie."""

    _fields_ = [
        ("layers", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("number", "capacity", "vocabulary", "slots", "positions")),
        *((name, ctypes.c_void_p) for name in ("embedding", "norm", "head", "cos", "sin")),
    ]


# as engine/batch.py names them
OF_ROWS = (
    *("last", "count", "limit", "key", "root_length", "base", "slot"),
    *("factor", "greedy", "done", "ended", "tokens", "logp", "stops"),
)


# kernels that return a number; those of the others return nothing
COUNTS = ("leading", "part", "next_logits", "say", "choose", "from_logits", "d_logits")


class RowsAt(ctypes.Structure):
    """Where the rows of an engine lie."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in OF_ROWS),
        *((name, ctypes.c_long) for name in ("room", "endings")),
        *((name, ctypes.c_void_p) for name in ("at", "leaders", "number", "mark", "family", "lengths")),
        *((name, ctypes.c_long) for name in ("families", "longest")),
    ]


@cache
def _found() -> tuple[ctypes.CDLL, kernel_cache.Library] | str:
    """The kernels and the library that they are in, or the reason why there are none."""
    try:
        with kernel_cache.library() as library:
            return _load(library.path), library
    except kernel_cache.Refused as reason:
        return str(reason)


def kernels() -> ctypes.CDLL | None:
    """The kernels, built if they have to be; None where there can be none."""
    found = _found()
    return None if isinstance(found, str) else found[0]


def there() -> ctypes.CDLL:
    """The kernels, where it is known that there are some."""
    found = kernels()
    assert found is not None
    return found


def why_not() -> str | None:
    """Why there are no kernels."""
    found = _found()
    return found if isinstance(found, str) else None


def made_by() -> kernel_cache.Library | str:
    """The library that is loaded: its hash, compiler, flags and processor; or why there is none."""
    found = _found()
    return found if isinstance(found, str) else found[1]


def _load(path: Path) -> ctypes.CDLL:
    try:
        found = ctypes.CDLL(str(path))
    except OSError as error:
        raise kernel_cache.Refused(f"{path} cannot be loaded: {error}") from None
    number, floats, flat = ctypes.c_long, ctypes.c_void_p, ctypes.c_float
    for name, kinds in {
        "lay_out": [floats] * 2 + [number] * 4,
        "times": [floats] * 3 + [number] * 3 + [floats],
        "multiply": [floats, number, floats, floats] + [number] * 3,
        "norm": [floats] * 4 + [number] * 2 + [flat],
        "norm_back": [floats] * 7 + [number] * 2 + [flat],
        "gate_back": [floats] * 5 + [number] * 2,
        "layer": [floats] * 14,
        "layer_begins": [floats] * 7 + [number],
        "layer_ends": [floats] * 9 + [number],
        "head_norms_back": [floats] * 6 + [number],
        "attention_back": [floats] * 8,
        "leading": [floats, number],
        "next_logits": [floats] * 3 + [number] + [floats] * 2 + [number, floats],
        "say": [floats, number, number, floats, number, floats],
        "part": [floats, number, floats, number, floats, number],
        "choose": [floats, number, number] + [floats] * 6,
        "from_logits": [floats, number, number, floats, floats, number] + [floats] * 3,
        "d_logits": [floats, number, number, floats, flat] + [floats] * 5,
        "copy_slots": [floats] * 2 + [number] * 3 + [floats] * 3,
        "attend": [floats] * 4,
        "attend_back": [floats] * 4,
    }.items():
        function = getattr(found, name)
        function.argtypes, function.restype = kinds, number if name in COUNTS else None
    return found
