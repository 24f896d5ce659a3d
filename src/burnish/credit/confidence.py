"""The policy's own confidence as its reward (RLSC, arXiv 2506.06395)."""

from __future__ import annotations

import math

from burnish.core.parts import Part, per_trace
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.credit.baselines import spread


def own_probability(alpha: float, *, author: str = "policy") -> Part:
    """adv = p_old(y | x) + alpha: the probability that the policy gave its own reply when it wrote it, from stream
    "old".
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        p = math.exp(float(trace.streams["old"][trace.by(author)].sum()))
        spread(trace, p + alpha)
        step.notes.add("confidence", p)

    return per_trace(
        write,
        name="own_probability",
        reads=frozenset({"stream:old", f"tokens:{author}"}),
        writes=frozenset({"stream:adv"}),
    )
