"""The natural-gradient step of TRPO: as far as a trust region allows, and no further.

Schulman et al., "Trust Region Policy Optimization" (arXiv 1502.05477):

    minimise the total  subject to  mean KL(pi_old || pi) <= delta
    x = F^-1 g by conjugate gradient;   step = sqrt(2 delta / x^T F x) x;   then backtrack until KL <= delta and the
    total fell

F v, the Fisher matrix times a vector, is a finite difference: the gradient of (log pi - log pi_old)^2 / 2 at
theta + e v is its gradient at theta plus e F v to first order, with F the mean of grad log pi grad log pi^T over the
sampled tokens. The gradient at theta is 0 where pi_old is the policy itself. It is not where the log-probs of pi_old
come from another engine or from another moment: there 5e-2 of difference outweighs e F v, so it is taken off.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from burnish.core.rejected import NotFinite
from burnish.core.step import Notes, Step
from burnish.core.types import Group
from burnish.learn.learn import Learn, Move, accumulate, measure
from burnish.models.model import Model


def trust_region(
    trust: str,
    *,
    delta: float = 0.01,
    damping: float = 0.1,
    iterations: int = 10,
    backtrack: float = 0.8,
    tries: int = 10,
) -> Move:
    """A move for `Learn`: the term called `trust` measures the KL (k2, anchored on the policy before the step), the
    others are minimised. `damping` is added to F's diagonal. One trainee."""

    def move(batch: list[Group], plan: Learn, step: Step) -> None:
        objective = Learn(*(t for t in plan.terms if t.name != trust), logp_temperature=plan.logp_temperature)
        region = Learn(*(t for t in plan.terms if t.name == trust), logp_temperature=plan.logp_temperature)
        quiet = Step(step.clock, step.models, step.settings, Notes(), product=step.product)  # probes take no notes
        weights = _Weights(step, plan.trainees[0])
        g = weights.gradient(batch, objective, step)
        if g is None or not float(g.norm()):
            return
        if not math.isfinite(float(g.norm())):
            raise NotFinite(f"the gradient's norm is {float(g.norm())}")
        step.models.before_move()

        here = weights.gradient(batch, region, quiet)
        assert here is not None

        def fisher(v: Tensor) -> Tensor:
            small = 1e-2 * weights.scale / float(v.norm())
            with weights.moved_by(small * v):
                found = weights.gradient(batch, region, quiet)
            assert found is not None
            return (found - here) / small + damping * v

        x = conjugate_gradient(fisher, g, iterations)
        curvature = float(x @ fisher(x)) if x.any() else 0.0
        if curvature <= 0:  # rounding, where hardly anything changes: no direction to trust
            step.notes.add("trust/accepted", 0.0)
            return
        full = -x * (2 * delta / curvature) ** 0.5
        before = measure(batch, objective, quiet)
        for k in range(tries):
            with weights.moved_by(full * backtrack**k) as kept:
                if measure(batch, region, quiet) <= delta and measure(batch, objective, quiet) < before:
                    kept.keep()
                    break
        step.notes.add("trust/kl", measure(batch, region, quiet))
        step.notes.add("trust/accepted", float(kept.kept))
        step.notes.add("grad_norm", float(g.norm()))

    return move


def conjugate_gradient(times: Callable[[Tensor], Tensor], b: Tensor, iterations: int) -> Tensor:
    """x with A x = b, for a symmetric positive A given as a product with vectors."""
    x, r = torch.zeros_like(b), b.clone()
    p, rr = r.clone(), float(b @ b)
    for _ in range(iterations):
        ap = times(p)
        curvature = float(p @ ap)
        if curvature <= 0:  # not positive after all, by rounding: the steps so far stand
            break
        alpha = rr / curvature
        x, r = x + alpha * p, r - alpha * ap
        following = float(r @ r)
        if following < 1e-10 * float(b @ b):
            break
        p, rr = r + (following / rr) * p, following
    return x


class _Weights:
    """A trainee's parameters as one vector that can be moved and moved back."""

    def __init__(self, step: Step, trainee: str) -> None:
        self.model = step.models[trainee]
        self.optimiser = self.model.optimiser
        self.parameters = list(self.optimiser.named.values())
        flat = torch.cat([p.detach().flatten() for p in self.parameters])
        self.scale = float(flat.norm()) / len(flat) ** 0.5

    def gradient(self, batch: list[Group], plan: Learn, step: Step) -> Tensor | None:
        self.optimiser.zero()
        if not accumulate(batch, plan, step):
            return None
        return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in self.parameters])

    def moved_by(self, by: Tensor) -> _Moved:
        return _Moved(self.model, self.parameters, by)


class _Moved:
    """Inside, the parameters stand elsewhere; after, they are back bit for bit, unless they are to stay."""

    def __init__(self, model: Model, parameters: list[torch.nn.Parameter], by: Tensor) -> None:
        self.model, self.parameters, self.by, self.kept = model, parameters, by, False

    def keep(self) -> None:
        """Stay where the parameters are now."""
        self.kept = True

    @torch.no_grad()
    def __enter__(self) -> _Moved:
        self.held = [p.detach().clone() for p in self.parameters]
        for p, part in zip(self.parameters, self.by.split([p.numel() for p in self.parameters]), strict=True):
            p.add_(part.view_as(p))
        self.model.weights_moved()
        return self

    @torch.no_grad()
    def __exit__(self, *_: object) -> None:
        if not self.kept:
            for p, held in zip(self.parameters, self.held, strict=True):
                p.copy_(held)
            self.model.weights_moved()
