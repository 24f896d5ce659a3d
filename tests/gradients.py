"""What tests of gradients share: the gradient of a plan, groups to take it on, and when two gradients are the same."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from conftest import SMALL, credited
from torch import Tensor

from burnish.core.method import Method, Phase
from burnish.core.step import Settings, Step
from burnish.core.types import Group
from burnish.learn.learn import Learn, accumulate
from burnish.models.build import Models


def gradient(groups: list[Group], plan: Learn, step: Step, settings: Settings = SMALL, packed: bool = True) -> Tensor:
    """The gradient of all trainees of a plan, as one vector."""
    for name in plan.trainees:
        step.models[name].optimiser.zero()
        step.models[name].packed = packed
    accumulate(groups, plan, replace_settings(step, settings))
    found = [
        p.grad.flatten() for name in plan.trainees for p in step.models[name].module.parameters() if p.grad is not None
    ]
    return torch.cat(found).clone() if found else torch.zeros(1)


def apart(method: Method, models: Models) -> Iterator[tuple[Phase, list[Group], Step]]:
    """What each phase would learn from, its trainees moved since: they differ from "old", from the reference, from
    every stream.

    Where a policy still is its reference, the gradient of a KL is 0, and a law about it would hold for any mistake.
    """
    for phase, groups, step in credited(method, models):
        noise = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for name in phase.learn.trainees:
                for p in models[name].module.parameters():
                    if p.requires_grad:
                        p.add_(0.01 * torch.randn(p.shape, generator=noise, dtype=p.dtype))
        yield phase, groups, step


def replace_settings(step: Step, settings: Settings) -> Step:
    return Step(step.clock, step.models, settings, product=step.product)


def assert_same(a: Tensor, b: Tensor, what: str) -> None:
    """Equal to 1e-9 of the gradient's own size, in fp64: rounding cannot hide a wrong weight."""
    scale = max(float(a.norm()), 1e-12)
    assert float((a - b).norm()) / scale < 1e-9, (
        f"{what} changed the gradient by {float((a - b).norm()) / scale:.2e} of its norm"
    )
