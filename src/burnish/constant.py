"""Tensors of one number, made once. Nobody may change them: they are to be read, or joined with others."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

NAN = float("nan")  # one object: it is found again, though it does not equal itself


@lru_cache(maxsize=4096)
def constant(value: float, tokens: int, dtype: torch.dtype) -> Tensor:
    """[tokens] of one value; replies and prompts are as long as each other often enough."""
    return torch.full((tokens,), value, dtype=dtype)
