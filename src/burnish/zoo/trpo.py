"""Trust Region Policy Optimization (arXiv 1502.05477)."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, score
from burnish.core.rejected import NotFinite
from burnish.core.step import Notes, Step
from burnish.core.types import Group
from burnish.learn.learn import Learn, Move, accumulate, measure
from burnish.learn.trust_region import conjugate_gradient
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.models.model import Model
from burnish.papers import Paper

TRPO = Paper("trpo", "1502.05477", "Trust Region Policy Optimization")


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
            curved: Tensor = (found - here) / small + damping * v
            return curved

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


@register(
    TRPO,
    family="policy",
    summary="A natural-gradient step with a hard limit on the KL, found by conjugate gradient and line search.",
    when="You need each step's change of the policy bounded for certain, and can pay for conjugate gradients.",
    trial={"n": 4, "iterations": 2},
)
def trpo(
    task: draw.Source,
    *,
    n: opt.Replies = 8,
    delta: Annotated[float, Option("The largest KL of a step.", above=0)] = 0.01,
    damping: Annotated[float, Option("Added to the Fisher matrix's diagonal.", at_least=0)] = 0.1,
    iterations: Annotated[int, Option("Iterations of conjugate gradient.", at_least=1)] = 10,
    backtrack: Annotated[float, Option("Factor that shortens a step that goes too far.", above=0, below=1)] = 0.8,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Trust region policy optimisation, with group advantages in place of a critic.

    maximise mean over tokens of rho A  subject to  mean KL(pi_old || pi) <= delta
    rho = pi/pi_old,  A = (r - mean) / std
    x = (F + damping I)^-1 g by conjugate gradient;  step sqrt(2 delta / x^T F x) x, shortened until the bound holds

    The KL is the k2 estimate at sampled tokens, from the log-probs that the trainer computes before the step: there its
    curvature is the Fisher matrix F. rho is relative to the sampler's own log-probs. The learning rate plays no part.
    Departures: the paper's returns come from a value function or from whole episodes; here they are group advantages.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        credit=chain(credit.group_relative(), credit.behaviour(), credit.streams("policy", logp="start")),
        learn=learn.Learn(
            learn.pg_clip(float("inf")),
            learn.kl_k2(coef=1.0, anchor="start", name="trust"),
            move=trust_region("trust", delta=delta, damping=damping, iterations=iterations, backtrack=backtrack),
        ),
        models=roles(**score.rm_role(reward_model)),
    )
