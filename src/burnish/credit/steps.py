"""Credit to whole replies or steps, from numbers that stand on the trace."""

from __future__ import annotations

import torch

from burnish.core.parts import Part, everything, per_trace, supplies
from burnish.core.schedules import is_zero
from burnish.core.step import Step
from burnish.core.types import Group, Trace


@supplies("stream:gain")
def step_advantage(score: str, stream: str = "gain") -> Part:
    """A_i = V_i - mean over the group of V_j, V the named score, on all tokens of trace i."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            mean = sum(trace.scores[score] for trace in group.traces) / max(1, len(group.traces))
            for trace in group.traces:
                trace.streams[stream] = torch.full((len(trace),), float(trace.scores[score] - mean))
        return groups

    return Part(
        name=f"step_advantage({score})",
        call=call,
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({f"stream:{stream}"}),
    )


def add_dense(stream: str, weight: float = 1.0) -> Part:
    """r_t + weight x the named stream at the tokens that have one: token rewards of a scorer (core/scorer.py)."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        bonus = trace.streams[stream]
        known = ~bonus.isnan() & ~trace.streams["reward"].isnan()
        trace.streams["reward"][known] += weight * bonus[known]
        step.notes.add(stream, float(bonus[known].sum()))

    return per_trace(
        write,
        name=f"add_dense({stream})",
        reads=frozenset({"stream:reward", f"stream:{stream}"}),
        updates=frozenset({"stream:reward"}),
    )


@supplies("stream:reward")
def dense_bonus(weight: float, limit: float, *, stream: str, author: str = "policy") -> Part:
    """r_t + clip(weight (log p - log ref), -limit, limit) at the author's tokens: log p is the named stream.

    RTO's token reward (arXiv 2404.18922), with p a policy that was trained by DPO: its log-ratio to the reference is,
    up to a scale, the reward that the preferences imply.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        mask = trace.by(author)
        bonus = (weight * (trace.streams[stream] - trace.streams["ref"])[mask]).clamp(-limit, limit)
        trace.streams["reward"][mask] += bonus
        step.notes.add("dense_bonus", float(bonus.sum()), int(mask.sum()))

    found = per_trace(
        write,
        name=f"dense_bonus({stream})",
        reads=frozenset({"stream:reward", f"stream:{stream}", "stream:ref", f"tokens:{author}"}),
        writes=frozenset(),
    )
    idle = everything if is_zero(weight) else None
    return Part(name=found.name, call=found.call, reads=found.reads, updates=frozenset({"stream:reward"}), idle=idle)
