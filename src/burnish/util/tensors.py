"""Cached constant tensors, which are shared, so callers must not modify them in place; and logits of several models."""

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


def shared_columns(logits: list[Tensor]) -> list[Tensor]:
    """Logits [..., V_i] of several models, each cut to the ids that all of them have.

    Models of one family are padded to different sizes (Qwen2.5: 151,936 rows of 0.5B, 152,064 of 7B); no token has the
    ids beyond the smallest.
    """
    least = min(one.shape[-1] for one in logits)
    return [one if one.shape[-1] == least else one[..., :least] for one in logits]
