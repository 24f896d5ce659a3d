"""Credit to whole replies or steps, from numbers that stand on the trace."""

from __future__ import annotations

from burnish.core.parts import Part, per_trace
from burnish.core.step import Step
from burnish.core.types import Group, Trace


def add_dense(stream: str, weight: float = 1.0) -> Part:
    """r_t + weight x the named stream at the tokens that have one: token rewards of a scorer (core/scorer.py)."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        bonus = trace.streams[stream]
        rewarded = ~bonus.isnan() & ~trace.streams["reward"].isnan()
        trace.streams["reward"][rewarded] += weight * bonus[rewarded]
        step.notes.add(stream, float(bonus[rewarded].sum()))

    return per_trace(
        write,
        name=f"add_dense({stream})",
        reads=frozenset({"stream:reward", f"stream:{stream}"}),
        updates=frozenset({"stream:reward"}),
    )
