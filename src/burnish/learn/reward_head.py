"""Moves that train some outputs of a reward model's head and leave the rest of the model as it is."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from burnish.core.step import Step
from burnish.core.types import Clock, Group
from burnish.forward.module import bare
from burnish.learn.learn import Learn, Move, descend
from burnish.models.model import Model

Fold = Callable[[list[Group], Step], Tensor | None]  # a new head matrix [k, H], or None where nothing is to be changed


def all_but_head(parameter: str, clock: Clock) -> bool:
    """For `Learn(rest=...)`: every parameter but the scoring head's rests."""
    return ".score." not in f".{parameter}"  # adapters put their wrapper's name before it


def head_of(model: Model) -> Tensor:
    """The matrix [k, H] of a reward model's head."""
    return bare(model.module).score.weight


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
        weight = head_of(model).detach().clone()
        descend(batch, plan, step)
        weight[rows] = head_of(model).detach()[rows]
        set_head(model, weight)

    return move
