"""Slots of keys and values, as our kernels keep them."""

from __future__ import annotations

from ctypes import byref

import numpy as np
from torch import Tensor

from burnish.cast.native import compiled
from burnish.cast.tree import Numbers


def copy_slots(layers: list[tuple[Tensor, Tensor]], source: Numbers, to: Numbers, tokens: Numbers) -> None:
    """In every layer's keys and values, what slots `source` hold, so many tokens each, goes to slots `to` as well."""
    run, (_, kv_heads, capacity, width) = compiled.there(), layers[0][1].shape
    shape = compiled.Shape(0, kv_heads, kv_heads, width, 0, 0.0, 0.0)
    told = (compiled.LayerAt * len(layers))(
        *(compiled.LayerAt(own_k=k.data_ptr(), own_v=v.data_ptr()) for k, v in layers)
    )
    numbers = [np.ascontiguousarray(x, dtype=np.int64) for x in (source, to, tokens)]
    run.copy_slots(byref(shape), told, len(layers), capacity, len(source), *(x.ctypes.data for x in numbers))
