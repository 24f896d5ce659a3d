"""The labels of a reply's steps, at the tokens that end them."""

from __future__ import annotations

import math

from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.score.step_rewards import place


@supplies("stream:label")
def step_labels(*, low: float = 0.0, high: float = 1.0, stream: str = "label") -> Part:
    """The task's labels at the ends of the steps, NaN elsewhere and where a step has no label (None).

    Signed labels, 1 and -1 alone, stand for right and wrong: -1 becomes `low`. Other labels outside of [low, high] are
    refused: a label of -1 beside one of 0.5 is no chance of being right.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        ends = trace.note["ends"]
        labels = [math.nan if label is None else float(label) for label in group.task.given["labels"]]
        if {label for label in labels if not math.isnan(label)} <= {1.0, -1.0}:
            labels = [low if label == -1 else label for label in labels]
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


@supplies("stream:label")
def turn_labels(score: str = "value", *, stream: str = "label") -> Part:
    """turn_scores[score] at the last token of each turn, NaN elsewhere: the steps of a searched reply are its turns."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        ends = [end - 1 for _, _, end in trace.spans()]
        trace.streams[stream] = place(len(trace), ends, trace.turn_scores[score])

    return per_trace(
        write,
        name=f"turn_labels({score})",
        reads=frozenset({f"turn_score:{score}"}),
        writes=frozenset({f"stream:{stream}"}),
    )
