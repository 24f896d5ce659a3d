"""On which side of a target the policy's entropy is."""

from __future__ import annotations

import torch

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group


@supplies("stream:side")
def entropy_side(target: float, *, author: str = "policy") -> Part:
    """sign(H - target) on every token, as stream "side"; H is the mean of stream "entropy" over the batch's tokens.

    It is a number of the whole batch, so it is computed before the first backward pass, and no micro-batch changes it.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        own = [trace.streams["entropy"][trace.by(author)] for trace in traces]
        tokens = sum(map(len, own))
        mean = sum(float(one.double().sum()) for one in own) / tokens if tokens else target
        side = float((mean > target) - (mean < target))
        for trace in traces:
            trace.streams["side"] = torch.full((len(trace),), side)
        return groups

    return Part(
        name=f"entropy_side({target:g})",
        call=call,
        reads=frozenset({"stream:entropy", f"tokens:{author}"}),
        writes=frozenset({"stream:side"}),
    )
