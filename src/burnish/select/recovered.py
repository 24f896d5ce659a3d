"""Groups that a batch had no room for, kept for the next one."""

from __future__ import annotations

from dataclasses import replace

from burnish.core.parts import Draw, Part, Rollout
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.select.refill import other_moment
from burnish.select.remember import Store


def recovered(keep: Part, draw: Draw, rollout: Rollout, score: Part, times: int, store: Store) -> Part:
    """Recent sample recovery (Confucius3-Math, arXiv 2506.18330, section 6.3): dynamic sampling by whole batches.

    The batch starts with the groups that the last one had no room for (`store`), then takes what the filter `keep`
    leaves of the step's own groups; while it is not full, whole batches are drawn, sampled, scored and filtered, up to
    `times` times. The first `prompts` groups are trained on, the others are stored. Their replies are then one or more
    steps old; whether a ratio accounts for that is the method's choice, and the paper's is not to.

    What is drawn in the k-th refill is a function of the seed, the step and k, as in `refilled`.
    """
    if times < 0:
        raise ValueError(f"{times} refills; it must be 0 or more")

    def call(groups: list[Group], step: Step) -> list[Group]:
        wanted, old = step.settings.prompts, store.groups
        kept = [*old, *step.through(keep, groups)]
        for k in range(times):
            if len(kept) >= wanted:
                break
            again = replace(step, clock=other_moment(step.clock, k))
            fresh = score.call(rollout.call(draw.call(again), again), again)
            step.notes.count("refilled", len(fresh))
            kept += again.through(keep, fresh)
        store.groups = []
        store.add(kept[wanted:])
        step.notes.count("recovered", len(old))
        return kept[:wanted]

    state = (*keep.state, *draw.state, *rollout.state, *score.state, store)
    return replace(keep, name=f"recovered({keep.name}, {times})", call=call, parts=(), state=state)
