"""Losses of values against targets."""

from __future__ import annotations

import torch
from torch import Tensor


def squared_error(value: Tensor, target: Tensor) -> Tensor:
    """(V - target)^2, per token."""
    assert value.shape == target.shape, (value.shape, target.shape)
    return (value - target).square()


def clipped_squared_error(value: Tensor, old_value: Tensor, target: Tensor, eps: float) -> Tensor:
    """PPO's clipped value loss, per token [N]:

        V_clip = old_value + clip(V - old_value, -eps, eps),   L = max((V - target)^2, (V_clip - target)^2) / 2

    With eps infinite it is half the squared error.
    """
    assert value.shape == old_value.shape == target.shape
    clipped = old_value + (value - old_value).clamp(-eps, eps)
    return torch.maximum((value - target).square(), (clipped - target).square()) / 2
