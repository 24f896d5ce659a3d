"""From numbers on whole replies to numbers on their tokens."""

from __future__ import annotations

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
