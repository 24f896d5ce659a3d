"""Losses of values against targets."""

from __future__ import annotations

import torch

from burnish.learn.maths.shapes import AnyShape


def squared_error(value: AnyShape, target: AnyShape) -> AnyShape:
    """(V - target)^2, per token."""
    assert value.shape == target.shape, (value.shape, target.shape)
    return (value - target).square()


def clipped_squared_error(value: AnyShape, old_value: AnyShape, target: AnyShape, eps: float) -> AnyShape:
    """PPO's clipped value loss, per token [N]:

        V_clip = old_value + clip(V - old_value, -eps, eps),   L = max((V - target)^2, (V_clip - target)^2) / 2

    With eps infinite it is half the squared error.
    """
    assert value.shape == old_value.shape == target.shape
    clipped = old_value + (value - old_value).clamp(-eps, eps)
    return torch.maximum((value - target).square(), (clipped - target).square()) / 2


def value_is_clipped(value: AnyShape, old_value: AnyShape, target: AnyShape, eps: float) -> AnyShape:
    """1 where the clip of PPO's value loss leaves no gradient: V moved by more than eps, and V_clip is further from the
    target; else 0.
    """
    clipped = old_value + (value - old_value).clamp(-eps, eps)
    return (((value - old_value).abs() > eps) & ((clipped - target).abs() > (value - target).abs())).to(value.dtype)


def explained_variance(value: AnyShape, target: AnyShape) -> float | None:
    """1 - Var(target - V) / Var(target) over tokens [N]; None where all targets are equal.

    1: V is the target up to a constant; 0: V tells as little as a constant; below 0: less.
    """
    assert value.shape == target.shape
    spread = float(target.double().var(unbiased=False)) if len(target) else 0.0
    return 1 - float((target.double() - value.double()).var(unbiased=False)) / spread if spread > 1e-12 else None
