"""The labels of a reply's steps, at the tokens that end them."""

from __future__ import annotations

import math

from burnish.parts import Part, per_trace, supplies
from burnish.score.step_rewards import place
from burnish.step import Step
from burnish.types import Group, Trace


@supplies("stream:label")
def step_labels(*, low: float = 0.0, high: float = 1.0, stream: str = "label") -> Part:
    """The task's labels at the ends of the steps, NaN elsewhere and where a step has no label (None).

    Labels outside of [low, high] are refused: a label of -1 is no chance of being right.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        ends = trace.note["ends"]
        labels = [math.nan if label is None else float(label) for label in group.task.given["labels"]]
        for label in labels:
            if not math.isnan(label) and not low <= label <= high:
                raise ValueError(
                    f"task {group.task.key[:60]!r} has the label {label:g}; labels of steps are between {low:g} and "
                    f"{high:g}, or true and false"
                )
        trace.streams[stream] = place(len(trace), ends, labels[: len(ends)])

    return per_trace(
        write,
        name="step_labels",
        reads=frozenset({"note:ends", "given:labels"}),
        writes=frozenset({f"stream:{stream}"}),
    )
