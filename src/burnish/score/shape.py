"""Clipping, normalisation and rescaling of scores."""

from __future__ import annotations

import math

from burnish.core.parts import Part, supplies
from burnish.core.state import State
from burnish.core.step import Step
from burnish.core.types import Group


class Moments:
    """Running mean and variance, updated batch by batch (Chan et al.)."""

    def __init__(self, name: str = "moments") -> None:
        self.name = name
        self.count, self.mean, self.squares = 0, 0.0, 0.0

    def see(self, values: list[float]) -> None:
        """Add a batch of values."""
        if not values:
            return
        n, mean = len(values), sum(values) / len(values)
        gap, total = mean - self.mean, self.count + n
        self.squares += sum((value - mean) ** 2 for value in values) + gap**2 * self.count * n / total
        self.mean += gap * n / total
        self.count = total

    @property
    def std(self) -> float:
        """The sample standard deviation; 1 while all values are equal."""
        return math.sqrt(self.squares / (self.count - 1)) if self.count > 1 and self.squares > 0 else 1.0

    def state_dict(self) -> State:
        return {"count": self.count, "mean": self.mean, "squares": self.squares}

    def load_state_dict(self, state: State) -> None:
        self.count, self.mean, self.squares = state["count"], state["mean"], state["squares"]


@supplies("score:normal")
def normalised(
    moments: Moments, limit: float, *, scale: float = 1.0, score: str = "reward", name: str = "normal"
) -> Part:
    """scores[name] = scale clip((score - mean) / std, -limit, limit), with running moments that include this batch.

    Reward normalisation and clipping of arXiv 2307.04964, Eq. 18.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        moments.see([trace.scores[score] for trace in traces])
        for trace in traces:
            normal = (trace.scores[score] - moments.mean) / moments.std
            trace.scores[name] = scale * max(-limit, min(limit, normal))
        return groups

    return Part(
        name=f"normalised({limit:g})",
        call=call,
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({f"score:{name}"}),
        state=(moments,),
    )
