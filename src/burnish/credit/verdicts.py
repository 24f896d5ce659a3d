"""Credit for methods that ask of a reply only whether it is right, and of a prompt how often its replies are."""

from __future__ import annotations

import torch

from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace

RIGHT = 0.5  # a reply is right where it scores more than this


@supplies("stream:right")
def right(score: str = "reward") -> Part:
    """Stream "right": 1 on every token of a reply that scores more than 1/2, else 0."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.streams["right"] = torch.full((len(trace),), float(trace.scores[score] > RIGHT))

    return per_trace(write, name="right", reads=frozenset({f"score:{score}"}), writes=frozenset({"stream:right"}))


@supplies("stream:label")
def label(threshold: float = RIGHT, score: str = "reward") -> Part:
    """Stream "label" on every token of a reply: +1 (desirable) where it scores more than the threshold, else -1."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.streams["label"] = torch.full((len(trace),), 1.0 if trace.scores[score] > threshold else -1.0)

    return per_trace(write, name="label", reads=frozenset({f"score:{score}"}), writes=frozenset({"stream:label"}))


@supplies("stream:pass_rate")
def pass_rate(low: float, high: float, score: str = "reward") -> Part:
    """Stream "pass_rate": the share of a group's replies that are right, kept between low and high, on all their
    tokens.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            rate = sum(trace.scores[score] > RIGHT for trace in group.traces) / len(group.traces)
            for trace in group.traces:
                trace.streams["pass_rate"] = torch.full((len(trace),), min(max(rate, low), high))
        return groups

    return Part(
        name="pass_rate", call=call, reads=frozenset({f"score:{score}"}), writes=frozenset({"stream:pass_rate"})
    )


@supplies("stream:adv")
def signed(baseline: float = 0.0, score: str = "reward") -> Part:
    """A = 2 score - 1 - baseline: +1 for right and -1 for wrong, moved by a constant (TOPR, arXiv 2503.14286)."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.streams["adv"] = torch.full((len(trace),), 2 * trace.scores[score] - 1 - baseline)

    return per_trace(write, name="signed", reads=frozenset({f"score:{score}"}), writes=frozenset({"stream:adv"}))


def make_up_for_flat_groups(score: str = "reward") -> Part:
    """A times B / (B - M): B groups, M of which score all the same and so say nothing (GPG, arXiv 2504.02546)."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        flat = sum(len({trace.scores[score] for trace in group.traces}) < 2 for group in groups)
        if flat < len(groups):
            for trace in (trace for group in groups for trace in group.traces):
                trace.streams["adv"] = trace.streams["adv"] * (len(groups) / (len(groups) - flat))
        return groups

    return Part(
        name="make_up_for_flat_groups",
        call=call,
        reads=frozenset({"stream:adv", f"score:{score}"}),
        updates=frozenset({"stream:adv"}),
    )
