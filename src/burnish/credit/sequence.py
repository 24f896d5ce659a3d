"""From numbers on whole replies to numbers on their tokens."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace


@supplies("stream:*")
def shared(score: str, stream: str) -> Part:
    """The trace's score on every one of its tokens, as a stream."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.streams[stream] = torch.full((len(trace),), trace.scores[score])

    return per_trace(
        write,
        name=f"shared({score} as {stream})",
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({f"stream:{stream}"}),
    )


@supplies("stream:weight")
def class_weights(weights: Mapping[str, float], *, author: str = "demo") -> Part:
    """What a token of each class counts, as stream "weight"; a trace's class is its tag.

        w_t = weights[class of the trace] x N / (sum of weights over the batch's N tokens by the author)

    so that a mean over the N tokens is the weighted mean sum w l / sum w of the whole batch.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        found = [next(weights[tag] for tag in weights if tag in trace.tags) for trace in traces]
        sizes = [int(trace.by(author).sum()) for trace in traces]
        total = sum(weight * size for weight, size in zip(found, sizes, strict=True))
        for trace, weight in zip(traces, found, strict=True):
            trace.streams["weight"] = torch.full((len(trace),), weight * sum(sizes) / total if total else 0.0)
        return groups

    return Part(
        name=f"class_weights({', '.join(f'{tag} {w:g}' for tag, w in weights.items())})",
        call=call,
        reads=frozenset({f"tag:{tag}" for tag in weights} | {f"tokens:{author}"}),
        writes=frozenset({"stream:weight"}),
    )
