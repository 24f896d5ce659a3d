"""Weights between those of the start and those of a trained model: how they do, and how sharp the loss is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from burnish.core.types import Task
from burnish.evals.evaluate import evaluate, held_out_tasks
from burnish.evals.probed import Asked, Measures
from burnish.models.model import Model
from burnish.rollout.given import given_trace
from burnish.tasks.resolve import resolve_task

RADIUS = 0.02  # of the ball in which the worst loss is looked for, relative to the norm of each matrix


def interpolated(asked: Asked, *, task: str, points: int = 5, tasks: int = 60) -> Measures:
    """Along the straight line of weights from the start (0) to the trained model (1), over `points` inner places:

    dip                 how far accuracy on the run's own task falls below the line between its two ends, at most
    dip_shifted         the same on `task`, a shifted one
    shifted             the accuracy on the shifted task at the trained end
    sharpness           how much the demonstrations' loss rises at the middle of the line by a step uphill of RADIUS
                        times the norm of every matrix, along its gradient
    sharpness_straggler the same with a step in one matrix alone, of the matrix with the largest rise

    After arXiv 2410.16476. The worst point of the ball is found to first order, by one step.
    """
    model, start = asked.models[asked.who], asked.start()["policy"]
    ends = _matched(start.module, model.module)
    kept = [p.detach().clone() for p, _ in ends]
    own, shifted = asked.source, resolve_task(task)
    places = [i / (points + 1) for i in range(points + 2)]
    rates: dict[str, list[float]] = {"own": [], "shifted": []}
    try:
        for share in places:
            _place(model, ends, kept, share)
            for name, source in (("own", own), ("shifted", shifted)):
                evaluation = evaluate(asked.models, source, asked.settings, tasks=tasks, k=2, who=asked.who)
                rates[name].append(sum(map(sum, evaluation.correct)) / (2 * len(evaluation.correct)))
        _place(model, ends, kept, 0.5)
        whole, alone = _sharpness(model, held_out_tasks(own, tasks), asked.settings.max_length or model.context)
    finally:
        _place(model, ends, kept, 1.0)
    return {
        "dip": (_dip(rates["own"], places),),
        "dip_shifted": (_dip(rates["shifted"], places),),
        "shifted": (rates["shifted"][-1],),
        "sharpness": (whole,),
        "sharpness_straggler": (alone,),
    }


def _matched(start: nn.Module, trained: nn.Module) -> list[tuple[nn.Parameter, Tensor]]:
    before = dict(start.named_parameters())
    return [(p, before[name].detach().to(p.dtype)) for name, p in trained.named_parameters()]


@torch.no_grad()
def _place(model: Model, ends: Sequence[tuple[nn.Parameter, Tensor]], kept: Sequence[Tensor], share: float) -> None:
    """Set the weights to (1 - share) start + share trained."""
    for (p, first), last in zip(ends, kept, strict=True):
        p.copy_(last if share == 1.0 else torch.lerp(first, last, share))
    model.weights_moved()


def _dip(rates: Sequence[float], places: Sequence[float]) -> float:
    """How far the lowest inner point lies below the straight line between the two ends; 0 where none does."""
    line = [rates[0] + (rates[-1] - rates[0]) * at for at in places]
    return max(0.0, *(on - rate for on, rate in zip(line[1:-1], rates[1:-1], strict=True)))


def _sharpness(model: Model, rows: Sequence[Task], limit: int) -> tuple[float, float]:
    """The rise of the loss after a step uphill in all matrices, and in the matrix whose own step raises it most."""
    matrices = [p for p in model.module.parameters() if p.dim() > 1]
    limit = min(limit, model.context)
    traces = [given_trace(task, "demo", "demo", model.chat, limit, i, True) for i, task in enumerate(rows)]
    masks = [trace.by("demo") for trace in traces]

    def loss() -> Tensor:
        return -model.outputs([trace.tokens for trace in traces], masks, {"logp"})["logp"].double().mean()

    asks = [p.requires_grad for p in matrices]
    for p in matrices:
        p.requires_grad_(True)
    try:
        with torch.enable_grad():
            flat = loss()
            uphill = torch.autograd.grad(flat, matrices)
        whole = _rise(model, matrices, uphill, loss) - float(flat.detach())
        alone = max(_rise(model, [p], [g], loss) for p, g in zip(matrices, uphill, strict=True)) - float(flat.detach())
    finally:
        for p, before in zip(matrices, asks, strict=True):
            p.requires_grad_(before)
    return whole, alone


@torch.no_grad()
def _rise(
    model: Model, matrices: Sequence[nn.Parameter], uphill: Sequence[Tensor], loss: Callable[[], Tensor]
) -> float:
    """The loss after a step of RADIUS times the norm of each of these matrices along its gradient; it is undone."""
    kept = [p.detach().clone() for p in matrices]
    for p, old, gradient in zip(matrices, kept, uphill, strict=True):
        p.add_(gradient, alpha=float(RADIUS * old.norm() / gradient.norm().clamp_min(1e-12)))
    model.weights_moved()
    value = float(loss())
    for p, old in zip(matrices, kept, strict=True):
        p.copy_(old)
    model.weights_moved()
    return value
