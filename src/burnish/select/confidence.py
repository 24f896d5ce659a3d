"""Replies dropped by how sure the policy was of them."""

from __future__ import annotations

import math

from burnish.core.parts import Part
from burnish.core.step import Step
from burnish.core.types import Group


def drop_surest(share: float, *, stream: str = "entropy", author: str = "policy") -> Part:
    """Without the ceil(share x N) of the batch's N replies whose mean entropy (a stream) is smallest; ties: the earlier
    go.

    What the policy is sure of teaches it little (ESRL, arXiv 2308.02223). Groups left with no reply are dropped.
    """
    if not 0 <= share < 1:
        raise ValueError(f"the share to drop is {share}; it must be at least 0 and less than 1")

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        entropy = [float(trace.streams[stream][trace.by(author)].mean()) for trace in traces]
        order = sorted(range(len(traces)), key=lambda i: entropy[i])
        gone = {id(traces[i]) for i in order[: math.ceil(share * len(traces))]}
        for group in groups:
            group.traces = [trace for trace in group.traces if id(trace) not in gone]
        step.notes.add("dropped/sure", len(gone), max(1, len(traces)))
        return [group for group in groups if group.traces]

    return Part(
        name=f"drop_surest({share:g})",
        call=call,
        reads=frozenset({f"stream:{stream}", f"tokens:{author}"}),
        updates=frozenset({f"tokens:{author}"}),
    )
