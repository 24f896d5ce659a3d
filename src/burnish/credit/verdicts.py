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
