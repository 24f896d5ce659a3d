"""The returns of recorded episodes: which episodes are good, and how good an episode is beside them."""

from __future__ import annotations

import statistics

from burnish.core.parts import Part, supplies
from burnish.core.state import State
from burnish.core.step import Step
from burnish.core.types import Group


class Returns:
    """The returns of the newest recorded episodes that were read, at most `capacity` of them."""

    def __init__(self, name: str, capacity: int = 10_000) -> None:
        self.name, self.capacity = name, capacity
        self.seen: list[float] = []

    def add(self, values: list[float]) -> None:
        self.seen = [*self.seen, *values][-self.capacity :]

    def threshold(self, share: float) -> float:
        """The return that at least this share of the episodes reach: the largest such one."""
        ranked = sorted(self.seen, reverse=True)
        return ranked[max(0, min(len(ranked), round(share * len(ranked))) - 1)]

    def normalised(self, value: float) -> float:
        """LMRL-Gym's score of a return beside these."""
        return normalised_score(value, min(self.seen), statistics.fmean(self.seen), max(self.seen))

    def state_dict(self) -> State:
        return {"seen": self.seen}

    def load_state_dict(self, state: State) -> None:
        self.seen = [float(value) for value in state["seen"]]


def normalised_score(value: float, low: float, mean: float, best: float) -> float:
    """The normalised score of LMRL-Gym (arXiv 2311.18232): 0 at the lowest return, 50 at the mean, 100 at the best.

        50 (value - low) / (mean - low) below the mean;  50 + 50 (value - mean) / (best - mean) from it on

    Where all recorded returns are equal, that return is 50, less is 0 and more is 100. A return beyond the recorded
    ones has a score below 0 or above 100.
    """
    if value < mean:
        return 50.0 * (value - low) / (mean - low) if mean > low else 0.0
    if best > mean:
        return 50.0 + 50.0 * (value - mean) / (best - mean)
    return 100.0 if value > mean else 50.0


def watched(returns: Returns) -> Part:
    """Note the returns of the recorded episodes, and keep them for comparison. All episodes stay."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        earned = [trace.scores["reward"] for group in groups for trace in group.traces]
        returns.add(earned)
        step.notes.add("recorded_return", sum(earned), max(1, len(earned)))
        return groups

    return Part(name=f"watched({returns.name})", call=call, reads=frozenset({"score:reward"}), state=(returns,))


@supplies("tag:best")
def best_returns(returns: Returns, share: float) -> Part:
    """Only the episodes whose return is among the best share of those read so far; they get the tag "best".

    Equal returns are kept or left out together, so more than the share may stay.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        earned = [trace.scores["reward"] for group in groups for trace in group.traces]
        returns.add(earned)
        step.notes.add("recorded_return", sum(earned), max(1, len(earned)))
        least = returns.threshold(share) if returns.seen else 0.0
        for group in groups:
            group.traces = [trace for trace in group.traces if trace.scores["reward"] >= least]
            for trace in group.traces:
                trace.tags = trace.tags | {"best"}
        kept = [group for group in groups if group.traces]
        left = len(earned) - sum(len(group.traces) for group in kept)
        step.notes.add("dropped/low_return", left, max(1, len(earned)))
        return kept

    return Part(
        name=f"best_returns({share:g})",
        call=call,
        reads=frozenset({"score:reward"}),
        writes=frozenset({"tag:best"}),
        updates=frozenset({"tokens:demo"}),
        state=(returns,),
    )


def compared(returns: Returns) -> Part:
    """Note the returns of played episodes, and LMRL-Gym's normalised score of each beside the recorded ones."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        earned = [trace.scores["reward"] for group in groups for trace in group.traces]
        step.notes.add("played_return", sum(earned), max(1, len(earned)))
        if returns.seen:
            step.notes.add("normalised_score", sum(map(returns.normalised, earned)), max(1, len(earned)))
        return groups

    return Part(name=f"compared({returns.name})", call=call, reads=frozenset({"score:reward"}), state=(returns,))
