"""Rollouts that change in the course of a run."""

from __future__ import annotations

from burnish.core.parts import Rollout
from burnish.core.step import Step
from burnish.core.types import Group, Task


def staged(*stages: tuple[float, Rollout]) -> Rollout:
    """One rollout after the other: each is used up to the given share of the run, the last one to the end.

    staged((0.5, sample(8, temperature=0.7)), (1.0, sample(8, temperature=1.0))) samples hotter in the second half.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        done = step.clock.step / max(1, step.clock.of)
        now = next((rollout for until, rollout in stages if done < until), stages[-1][1])
        return now.call(tasks, step)

    rollouts = [rollout for _, rollout in stages]
    return Rollout(
        name=", then ".join(f"{rollout.name} up to {until:.0%}" for until, rollout in stages),
        call=call,
        reads=frozenset().union(*(rollout.reads for rollout in rollouts)),
        writes=frozenset.intersection(*(rollout.writes for rollout in rollouts)),
        state=tuple(item for rollout in rollouts for item in rollout.state),
    )
