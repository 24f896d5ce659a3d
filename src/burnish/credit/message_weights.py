"""What the messages of a demonstrated conversation count."""

from __future__ import annotations

import torch

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group


@supplies("stream:weight")
def message_weights(*, author: str = "demo") -> Part:
    """The weight of each message on every one of its tokens, as stream "weight".

        w_t = weight of the message x N / (sum of weights over the batch's N tokens by the author)

    so that a mean over the N tokens is the weighted mean sum w l / sum w of the whole batch.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        sums, tokens = 0.0, 0
        for trace in traces:
            own = trace.note.get("weights") or [1.0] * len(trace.turns)
            stream = torch.cat([torch.full((len(t),), w) for t, w in zip(trace.turns, own, strict=True)])
            trace.streams["weight"] = stream
            mask = trace.by(author)
            sums, tokens = sums + float(stream[mask].double().sum()), tokens + int(mask.sum())
        for trace in traces:
            trace.streams["weight"] = trace.streams["weight"] * (tokens / sums if sums else 0.0)
        return groups

    return Part(
        name="message_weights",
        call=call,
        reads=frozenset({f"tokens:{author}"}),
        writes=frozenset({"stream:weight"}),
    )
