"""Arrays as text, bit for bit, for the JSON of a checkpoint."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np


def packed(array: np.ndarray) -> dict[str, Any]:
    """Type, shape and the bytes in base64."""
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"type": str(array.dtype), "shape": list(array.shape), "data": data}


def unpacked(stored: dict[str, Any]) -> np.ndarray:
    """What `packed` stored; raises ValueError for other types than floats."""
    if stored["type"] not in ("float32", "float64"):
        raise ValueError(f"the checkpoint holds an array of type {stored['type']!r}; it must be float32 or float64")
    raw = base64.b64decode(stored["data"], validate=True)
    return np.frombuffer(raw, dtype=stored["type"]).reshape(stored["shape"]).copy()
