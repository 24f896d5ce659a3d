"""Batches filled up again after a filter emptied them."""

from __future__ import annotations

from dataclasses import replace

from burnish.core import randomness
from burnish.core.parts import Draw, Part, Rollout
from burnish.core.step import Step
from burnish.core.types import Clock, Group


def refilled(keep: Part, draw: Draw, rollout: Rollout, score: Part, times: int) -> Part:
    """The filter `keep`; where it leaves fewer groups than the run's prompts, as many others are drawn, sampled, scored
    and filtered in turn, up to `times` times (DAPO's dynamic sampling, arXiv 2503.14476).

    draw, rollout and score are the phase's own. What is drawn in the k-th refill of a step is a function of the seed,
    the step and k alone, so a rerun and a resumed run draw the same: there is nothing to remember.
    """
    if times < 0:
        raise ValueError(f"{times} refills; it must be 0 or more")

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = step.through(keep, groups)
        wanted = step.settings.prompts
        for k in range(times):
            if len(kept) >= wanted:
                break
            settings = replace(step.settings, prompts=wanted - len(kept))
            again = replace(step, clock=other_moment(step.clock, k), settings=settings)
            fresh = score.call(rollout.call(draw.call(again), again), again)
            step.notes.count("refilled", len(fresh))
            kept = [*kept, *again.through(keep, fresh)]
        return kept

    if not times:
        return keep
    state = (*keep.state, *draw.state, *rollout.state, *score.state)
    asked = keep.reads | {name for part in (rollout, score) for name in part.reads if name.startswith("model:")}
    return replace(keep, name=f"refilled({keep.name}, {times})", call=call, parts=(), state=state, reads=asked)


def other_moment(clock: Clock, k: int) -> Clock:
    """The same moment under a seed of its own: other tasks, other noise."""
    return replace(clock, seed=randomness.key_of(clock.seed, "refill", k) & 0x7FFFFFFF)
