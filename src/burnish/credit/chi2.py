"""The batch's own divergence from the reference, as the scale of its penalty."""

from __future__ import annotations

import math

import torch

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.learn.maths.chi2 import symmetric_chi2

FLOOR = 1e-4  # the released code's least mean under the square root


@supplies("stream:chi2_scale")
def chi2_scale(author: str = "policy") -> Part:
    """1 / (2 sqrt(m)) on every token, m = max(1e-4, mean over replies of (e^L - 1) + (e^-L - 1)), L = sum_t log
    old/ref.

    d sqrt(m) = dm / (2 sqrt(m)): with this scale a mean over replies has the gradient of the square root of the mean,
    taken over the whole batch and held for the updates that are made of it.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        ratios = [(trace.streams["old"] - trace.streams["ref"])[trace.by(author)].double().sum() for trace in traces]
        mean = float(symmetric_chi2(torch.stack(ratios)).mean()) if ratios else 0.0
        for trace in traces:
            trace.streams["chi2_scale"] = torch.full((len(trace),), 1 / (2 * math.sqrt(max(FLOOR, mean))))
        if ratios:
            step.notes.add("chi2", mean)
        return groups

    return Part(
        name="chi2_scale",
        call=call,
        reads=frozenset({"stream:old", "stream:ref", f"tokens:{author}"}),
        writes=frozenset({"stream:chi2_scale"}),
    )
