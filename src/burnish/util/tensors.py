"""Cached constant tensors. They are shared, so callers must not modify them in place."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

NAN = float("nan")  # one object, so that the cache finds it: dict lookup compares identity before equality


@lru_cache(maxsize=256)
def constant(value: float, tokens: int, dtype: torch.dtype) -> Tensor:
    """[tokens], filled with one value; cached, because lengths repeat often.

    Only for values that recur in every step. 256 tensors of 10,000 numbers hold 10 to 20 MB.
    """
    return torch.full((tokens,), value, dtype=dtype)
