"""Advantages of replies that were cut off."""

from __future__ import annotations

from burnish.core.parts import Part, per_trace
from burnish.core.step import Step
from burnish.core.types import Group, Trace


def weigh_cut_off(weight: float = 0.0) -> Part:
    """A <- weight A for replies that were cut off at max_new_tokens.

    With 0 they have no gradient, while they count in the mean of their group (AM-Thinking-v1, arXiv 2505.08311); 1
    changes nothing.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        if trace.note.get("stopped") == "length":
            trace.streams["adv"] = weight * trace.streams["adv"]

    stream = frozenset({"stream:adv"})
    return per_trace(write, name=f"weigh_cut_off({weight:g})", reads=stream, updates=stream)
