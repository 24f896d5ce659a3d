"""What is read in place of a trace's tokens while learning, where some of them are hidden."""

from __future__ import annotations

from burnish.core.parts import Part, names, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.rollout.filled import hidden, with_mask


@supplies("stream:read")
def masked_inputs(share: float, *, drawn: str = "policy", given: str = "demo", reader: str = "policy") -> Part:
    """What is read while learning, as stream "read": the mask where `drawn` wrote, and in place of each of `given`'s
    tokens
    but the last with the chance `share`; elsewhere the token itself."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        mask = trace.by(drawn) | hidden(trace, given, group.task, step.clock, share)
        trace.streams["read"] = with_mask(trace, mask, step.models[reader])

    return per_trace(
        write,
        name=f"masked_inputs({share:g})",
        reads=names("tokens", (drawn, given)),
        writes=frozenset({"stream:read"}),
    )
