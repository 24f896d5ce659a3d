"""Several scores at once: each is normalised in its group before they are added (GDPO, arXiv 2601.05242)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from burnish.core.parts import Part
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.credit.baselines import spread


def normalised(values: list[float], eps: float) -> list[float]:
    """(x - mean) / (std + eps) with the sample standard deviation; 0 where nothing differs."""
    mean = sum(values) / max(1, len(values))
    std = statistics.stdev(values) if len(values) > 1 else 0.0
    return [(x - mean) / (std + eps) if std else 0.0 for x in values]


def decoupled(weights: Mapping[str, float], *, eps: float = 1e-4) -> Part:
    """A_i = norm over the batch of sum_k w_k norm over the group of r_k,i, with norm x = (x - mean) / (std + eps).

    `weights` names the scores and their weights. Normalising first keeps apart replies that a sum of raw scores would
    give one advantage. With one score the batch is not normalised: GRPO's advantage, times its weight.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        totals = [0.0] * len(traces)
        for name, weight in weights.items():
            parts = [normalised([trace.scores[name] for trace in group.traces], eps) for group in groups]
            found = [x for part in parts for x in part]
            totals = [total + weight * x for total, x in zip(totals, found, strict=True)]
            step.notes.add(f"score/{name}", sum(trace.scores[name] for trace in traces), len(traces))
        for trace, advantage in zip(traces, normalised(totals, eps) if len(weights) > 1 else totals, strict=True):
            spread(trace, advantage)
        return groups

    return Part(
        name=f"decoupled({', '.join(weights)})",
        call=call,
        reads=frozenset(f"score:{name}" for name in weights),
        writes=frozenset({"stream:adv"}),
    )
