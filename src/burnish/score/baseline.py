"""Scores relative to a critic's value."""

from __future__ import annotations

import torch

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group


@supplies("score:advantage")
def above_value(critic: str = "critic", *, score: str = "reward", author: str = "demo") -> Part:
    """scores["advantage"] = score - V(x), the critic's value of the prompt (before the author's first token)."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        firsts = [int(trace.by(author).nonzero()[0]) for trace in traces]
        masks = [torch.arange(len(trace)) == first for trace, first in zip(traces, firsts, strict=True)]
        outputs = step.models[critic].streams(traces, masks, {"value"}, step.settings.token_budget)
        for trace, first, output in zip(traces, firsts, outputs, strict=True):
            trace.scores["advantage"] = trace.scores[score] - float(output["value"][first])
        return groups

    return Part(
        name=f"above_value({critic})",
        call=call,
        reads=frozenset({f"score:{score}", f"tokens:{author}", f"model:{critic}.value"}),
        writes=frozenset({"score:advantage"}),
    )
