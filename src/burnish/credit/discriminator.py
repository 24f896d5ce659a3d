"""Rewards from a discriminator of an expert's actions and the policy's own (inverse reinforcement learning)."""

from __future__ import annotations

import torch

from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.select.turn_rows import own_span


@supplies("stream:label")
def expert_labels() -> Part:
    """Stream "label": 1 on the last turn of traces with the tag "expert", 0 on that of the others."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.streams["label"] = torch.full((len(trace),), float("nan"))
        trace.streams["label"][slice(*own_span(trace))] = float("expert" in trace.tags)

    return per_trace(write, name="expert_labels", reads=frozenset({"tag:expert"}), writes=frozenset({"stream:label"}))


@supplies("stream:reward")
def discriminator_rewards(stream: str = "verdict") -> Part:
    """Stream "reward" of the policy's actions: log D - log(1 - D) at the last token, which is the logit of D.

    The logit is the stream's value at the last token. Traces without the tag "own" have no reward.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.streams["reward"] = torch.full((len(trace),), float("nan"))
        if "own" in trace.tags:
            start, end = own_span(trace)
            trace.streams["reward"][start:end] = 0.0
            trace.streams["reward"][end - 1] = trace.streams[stream][end - 1]
            step.notes.add("taken_for_expert", float(trace.streams[stream][end - 1].sigmoid()))

    return per_trace(
        write,
        name="discriminator_rewards",
        reads=frozenset({"tag:own", f"stream:{stream}"}),
        writes=frozenset({"stream:reward"}),
    )
