"""The composition of the refusals in data: how many replies are in each category, and how right a classifier is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from burnish.core.step import Settings, Step
from burnish.core.types import Clock, Task
from burnish.models.build import Models
from burnish.rollout.given import given_trace
from burnish.score.refusals import refusal_chances
from burnish.verifiers.refusal_categories import BRANCHES, Categories

AT_ONCE = 64


@dataclass(frozen=True)
class Counted:
    """A category or a branch: replies in it by the classifier, by the labels, and by both; None without labels."""

    name: str
    said: int
    true: int | None = None
    both: int | None = None

    @property
    def precision(self) -> float | None:
        """Of the replies that the classifier puts into it, the share that the labels do."""
        return None if self.both is None or not self.said else self.both / self.said

    @property
    def recall(self) -> float | None:
        """Of the replies that the labels put into it, the share that the classifier does."""
        return None if self.both is None or not self.true else self.both / self.true


def chances_of(tasks: Sequence[Task], models: Models, settings: Settings, categories: Categories) -> Tensor:
    """[n, k]: the chance of each category for the demonstration of each task."""
    reader = models["refusal"]
    limit = min(reader.context, settings.max_length or reader.context)
    step = Step(Clock(0, 1), models, settings)
    chances = []
    for start in range(0, len(tasks), AT_ONCE):
        some = tasks[start : start + AT_ONCE]
        traces = [given_trace(task, "demo", "demo", reader.chat, limit, 0, True) for task in some]
        chances.append(refusal_chances(traces, step, "refusal", categories))
    return torch.cat(chances)


def composition(chances: Tensor, labels: Tensor | None, categories: Categories) -> list[Counted]:
    """Counts of both branches, then of each category; labels [n, k] of 0 and 1, or None where there are none."""
    said = chances > 0.5
    true = None if labels is None else labels > 0.5

    def counted(name: str, places: slice) -> Counted:
        own = said[:, places].any(-1)
        if true is None:
            return Counted(name, int(own.sum()))
        has = true[:, places].any(-1)
        return Counted(name, int(own.sum()), int(has.sum()), int((own & has).sum()))

    branches = [counted(branch, categories.places(branch)) for branch in BRANCHES]
    return branches + [counted(name, slice(i, i + 1)) for i, name in enumerate(categories.names)]
