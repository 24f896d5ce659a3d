"""Moves that train some outputs of a reward model's head and leave the rest of the model as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from burnish.core.step import Step
from burnish.core.types import Clock, Group
from burnish.forward.module import bare
from burnish.learn.learn import Learn, Move, accumulate, apply_gradient, descend
from burnish.models.model import Model

Fold = Callable[[list[Group], Step], Tensor | None]  # a new head matrix [k, H], or None where nothing is to be changed


def all_but_head(parameter: str, clock: Clock) -> bool:
    """For `Learn(rest=...)`: every parameter but the scoring head's rests."""
    return ".score." not in f".{parameter}"  # adapters put their wrapper's name before it


def head_of(model: Model) -> Tensor:
    """The matrix [k, H] of a reward model's head."""
    module: Any = bare(model.module)
    weight: Tensor = module.score.weight
    return weight


def set_head(model: Model, weight: Tensor) -> None:
    """Replace the matrix of a reward model's head."""
    with torch.no_grad():
        head_of(model).copy_(weight)
    model.weights_moved()


def head_rows(rows: slice, fold: Fold | None = None) -> Move:
    """A move that changes these outputs of the head alone; the others keep still, whatever the optimiser remembers.

    fold  called before each update; where it gives a matrix, that is the head from now on (ArmoRM's debiasing)
    """

    def move(batch: list[Group], plan: Learn, step: Step) -> None:
        model = step.models[plan.trainees[0]]
        folded = None if fold is None else fold(batch, step)
        if folded is not None:
            step.models.before_move()
            set_head(model, folded)
        held = head_of(model).detach().clone()
        descend(batch, plan, step)
        held[rows] = head_of(model).detach()[rows]
        set_head(model, held)

    return move


def meta_step(ascend: str, eta: float) -> Move:
    """MetaRM's first-order update (arXiv 2405.00438): theta <- theta - alpha grad L(theta + eta grad J(theta)).

    ascend  the name of the term that is -J; the others are L, of which the gradient is taken at theta' and applied at
            theta. eta = 0 is the plain update.
    """

    def move(batch: list[Group], plan: Learn, step: Step) -> None:
        meta = plan.with_terms(*(term for term in plan.terms if term.name == ascend))
        rest = plan.with_terms(*(term for term in plan.terms if term.name != ascend))
        model = step.models[plan.trainees[0]]
        parameters = list(model.optimiser.named.values())
        model.optimiser.zero()
        held = [p.detach().clone() for p in parameters]
        step.models.before_move()
        if eta and accumulate(batch, meta, step):
            _set(model, [p if p.grad is None else p - eta * p.grad for p in parameters])
        model.optimiser.zero()
        found = accumulate(batch, rest, step)
        _set(model, held)
        if found:
            apply_gradient(rest, step)

    return move


@torch.no_grad()
def _set(model: Model, values: list[Tensor]) -> None:
    for p, value in zip(model.optimiser.named.values(), values, strict=True):
        p.copy_(value)
    model.weights_moved()
