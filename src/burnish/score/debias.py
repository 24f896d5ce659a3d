"""ArmoRM's attributes (arXiv 2406.12845): ridge regressions on a frozen backbone, and verbosity taken out of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace
from burnish.learn.maths.reward import ridge
from burnish.learn.reward_head import head_of
from burnish.score.aggregate import verbosity_shares
from burnish.score.heads import answered, end_outputs
from burnish.tasks.source import Source

PENALTIES = tuple(10.0**power for power in range(-4, 5))
REPLIES = ("chosen", "rejected", "demo", "mistake")  # columns of replies in the data


def training_tasks(source: Source, count: int) -> list[Task]:
    """The first training tasks of a source."""
    size = source.size("train")
    return [source.task("train", i) for i in range(count if size is None else min(count, size))]


def data_replies(source: Source, count: int, step: Step, model: str, columns: tuple[str, ...] = REPLIES) -> list[Trace]:
    """The replies of the first `count` training tasks of a source, as a model reads them."""
    reader = step.models[model]
    return [
        answered(task, str(task.given[column]), reader.chat, reader.context)
        for task in training_tasks(source, count)
        for column in columns
        if task.given.get(column) is not None
    ]


@dataclass(frozen=True)
class Rated:
    """The replies of the first `count` training tasks of a source, and how to read their ratings of k attributes."""

    source: Source
    count: int
    ratings: Callable[[Task, str, int], list[float]]  # (task, column of the reply, its tokens) -> k numbers or NaN

    def read(self, step: Step, model: str) -> tuple[list[Trace], Tensor]:
        """The traces and their ratings [n, k]."""
        reader, traces, rated = step.models[model], [], []
        for task in training_tasks(self.source, self.count):
            for column in REPLIES:
                if task.given.get(column) is None:
                    continue
                trace = answered(task, str(task.given[column]), reader.chat, reader.context)
                traces.append(trace)
                rated.append(self.ratings(task, column, len(trace.turns[-1])))
        return traces, torch.tensor(rated, dtype=torch.float64)


def fitted(features: Tensor, rated: Tensor) -> Tensor:
    """[k, H]: for each attribute a ridge regression without intercept on the replies that are rated for it.

    The penalty is the one of a grid with the least squared error on every fifth of these replies, which is then used on
    all of them. An attribute without ratings gets zeros.
    """
    rows = []
    for column in rated.T:
        known = ~column.isnan()
        x, y = features[known], column[known]
        if not len(y):
            rows.append(features.new_zeros(features.shape[1]))
            continue
        held = torch.arange(len(y)) % 5 == 4
        errors = {
            alpha: float((x[held] @ ridge(x[~held], y[~held], alpha) - y[held]).square().sum()) for alpha in PENALTIES
        }
        rows.append(ridge(x, y, min(PENALTIES, key=lambda alpha: errors[alpha])))
    return torch.stack(rows)


def without_verbosity(attributes: Tensor, features: Tensor, verbosity: int) -> tuple[Tensor, Tensor]:
    """Attribute vectors [k, H] with r'_i = r_i - lambda_i r_verbosity, and lambda [k] (`verbosity_shares`).

    The verbosity attribute itself becomes 0. features [n, H]: of the replies on which lambda is found.
    """
    scores = features @ attributes.T
    shares = verbosity_shares(scores, scores[:, verbosity])
    shares[verbosity] = 1.0
    return attributes - shares[:, None] * attributes[verbosity], shares


def attributes_at_start(
    rated: Rated, verbosity: int | None, *, model: str = "rm"
) -> Callable[[list[Group], Step], Tensor | None]:
    """A fold for `head_rows`: in the first step of a run, the head with fitted and debiased attributes; later None."""

    def fold(batch: list[Group], step: Step) -> Tensor | None:
        if step.clock.step or step.clock.tick:
            return None
        traces, ratings = rated.read(step, model)
        features = end_outputs(traces, step, model, "state")
        attributes = fitted(features, ratings)
        if verbosity is not None:
            attributes, shares = without_verbosity(attributes, features, verbosity)
            step.notes.add("verbosity_share", float(shares.sum() - 1), max(1, len(shares) - 1))
        weight = head_of(step.models[model]).detach().clone()
        weight[: len(attributes)] = attributes.to(weight)
        return weight

    return fold
