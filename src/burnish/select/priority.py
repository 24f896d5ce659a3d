"""A batch drawn again, the better the likelier."""

from __future__ import annotations

from dataclasses import replace

from burnish.core import randomness
from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group


@supplies("tag:drawn")
def prioritised(score: str = "advantage") -> Part:
    """As many traces as there are tasks, drawn with replacement in proportion to max(score, 0), over the whole batch.

    What scores 0 or less is never drawn. Each drawn trace is a group of its own and carries the tag "drawn".
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        pool = [(group.task, trace) for group in groups for trace in group.traces if trace.scores[score] > 0]
        seen = sum(len(group.traces) for group in groups)
        step.notes.add(f"dropped/no_{score}", seen - len(pool), seen)
        if not pool:
            return []
        clock = step.clock
        rng = randomness.rng(clock.seed, "prioritised", clock.step, clock.tick)
        drawn = rng.choices(pool, [trace.scores[score] for _, trace in pool], k=len(groups))
        return [
            Group(task, [replace(trace, streams=dict(trace.streams), tags=trace.tags | {"drawn"})])
            for task, trace in drawn
        ]

    return Part(
        name=f"prioritised({score})",
        call=call,
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({"tag:drawn"}),
    )
