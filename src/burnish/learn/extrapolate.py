"""Weights that go beyond what was learned: Nesterov's extrapolation between rounds."""

from __future__ import annotations

import torch

from burnish.core.parts import Publish
from burnish.core.step import Step


def extrapolated(alpha: float, *, trained: str = "policy", last: str = "last") -> Publish:
    """At the end of a round w <- w_hat + alpha (w_hat - w_hat_last), w_hat the weights that were learned.

    last  the snapshot that keeps w_hat of the round before; its period is the round. Followers of `trained` (a
    reference) that are due in the same step copy the extrapolated weights. alpha = 0 changes nothing. (arXiv
    2410.06293.)
    """

    @torch.no_grad()
    def call(moved: tuple[str, ...], step: Step) -> None:
        model, before = step.models[trained], step.models[last]
        if trained not in moved or not before.role.due(step.clock):
            step.models.publish(moved, step.clock, step.notes)
            return
        learned = {name: p.detach().clone() for name, p in model.module.named_parameters()}
        step.models.before_move()
        for name, p in before.module.named_parameters():
            target = dict(model.module.named_parameters())[name]
            target.add_(target - p.to(target.dtype), alpha=alpha)
        model.weights_moved()
        step.models.publish(moved, step.clock, step.notes)
        for name, p in before.module.named_parameters():
            p.copy_(learned[name])
        before.weights_moved()

    return Publish(
        name=f"extrapolated({alpha:g})", call=call, reads=frozenset({f"model:{trained}.logp", f"model:{last}.logp"})
    )
