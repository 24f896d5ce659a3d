"""Which finished units a step learns from in --order free. Pure functions; no unit is ever discarded.

A unit that was started on weights after v steps must be learned from by step v + lag, so that its samples are at most
`lag` steps old. Step t learns from as many units as were drawn for it. Units are taken in the order in which they
finished, as long as all remaining units can still meet their limits; a unit whose limit is this step is waited for.
Because no more units are admitted than later steps have capacity for, such a choice always exists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from burnish.core.sample_ledger import UnitId


def chosen(
    finished: Sequence[UnitId], limits: Mapping[UnitId, int], capacity: Mapping[int, int], step: int
) -> list[UnitId] | None:
    """The units that step `step` learns from; None while not enough are finished.

    finished  in the order in which they finished
    limits    for every unit not learned from yet: the last step that may learn from it
    capacity  step -> its number of units, for this step and all later ones that units were drawn for
    """
    taken: list[UnitId] = []
    for unit in finished:
        if len(taken) == capacity[step]:
            break
        if _feasible({u: s for u, s in limits.items() if u != unit and u not in taken}, capacity, step, len(taken) + 1):
            taken.append(unit)
    return taken if len(taken) == capacity[step] else None


def _feasible(left: Mapping[UnitId, int], capacity: Mapping[int, int], step: int, taken: int) -> bool:
    """Whether all remaining units can meet their limits if this step takes `taken` units."""
    free = capacity[step] - taken
    for last in sorted(set(left.values()) | {step}):
        places = free + sum(n for later, n in capacity.items() if step < later <= last)
        if sum(limit <= last for limit in left.values()) > places:
            return False
    return True


def limits_of(started: Mapping[UnitId, int | None], newest: int, lag: int) -> dict[UnitId, int]:
    """The last step that may learn from each unit; a unit not started yet counts as started on the newest weights."""
    return {unit: (newest if version is None else version) + lag for unit, version in started.items()}
