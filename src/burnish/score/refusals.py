"""What a classifier of refusals says of replies."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from burnish.core.parts import Part
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.score.heads import all_traces, end_outputs, scoring_part
from burnish.verifiers.refusal_categories import Categories


def refusal_chances(traces: Sequence[Trace], step: Step, model: str, categories: Categories) -> Tensor:
    """[n, k]: the chance of each category for each reply."""
    found = end_outputs(traces, step, model).sigmoid()
    if len(traces) and found.shape[1] != len(categories.names):
        raise ValueError(
            f"the refusal classifier {model!r} has {found.shape[1]} outputs, but there are {len(categories.names)} "
            "categories; name those that it was trained with (cannot=..., should_not=...)"
        )
    return found


def no_refusal(categories: Categories, branch: str, *, model: str = "refusal", name: str = "reward") -> Part:
    """scores[name] = 1 - the largest chance of a category of the branch (cannot, should_not or any).

    Notes refused/CATEGORY, the share of the replies in it (chance above 1/2): the composition of the refusals.
    """

    def values(groups: list[Group], step: Step) -> Tensor:
        chances = refusal_chances(all_traces(groups), step, model, categories)
        for category, column in zip(categories.names, chances.T, strict=True):
            step.notes.add(f"refused/{category}", float((column > 0.5).sum()), len(column))
        return 1 - chances[:, categories.places(branch)].amax(-1)

    return scoring_part(f"no_refusal({branch})", values, models=(model,), name=name)
