"""Which finished units a free-running step learns from. Pure: what is given decides, nothing is thrown away.

A unit that was started on weights of v steps must be learned by step v + lag (so that the weights that learn are at most
`lag` steps ahead of those that wrote). Step t has room for as many units as were drawn for it. Units are taken in the order
in which they were finished, as long as all that are still to come can then keep their own limit; one whose limit is now
must be waited for. Because no unit is admitted that a later step has no room for, there is always such a choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from burnish.placed.ledger import UnitId


def chosen(
    finished: Sequence[UnitId], limits: Mapping[UnitId, int], room: Mapping[int, int], step: int
) -> list[UnitId] | None:
    """The units that step `step` learns from; None while some of them are not finished.

    finished  in the order in which they became so
    limits    of every unit that is admitted and not learned yet: the last step that may learn it
    room      step -> how many units it learns, for this step and all later ones that units were drawn for
    """
    taken: list[UnitId] = []
    for unit in finished:
        if len(taken) == room[step]:
            break
        if _feasible({u: s for u, s in limits.items() if u != unit and u not in taken}, room, step, len(taken) + 1):
            taken.append(unit)
    return taken if len(taken) == room[step] else None


def _feasible(left: Mapping[UnitId, int], room: Mapping[int, int], step: int, taken: int) -> bool:
    """Whether the units that are left can all be learned in time, if `taken` places of this step are used."""
    free = room[step] - taken
    for last in sorted(set(left.values()) | {step}):
        places = free + sum(n for later, n in room.items() if step < later <= last)
        if sum(limit <= last for limit in left.values()) > places:
            return False
    return True


def limits_of(started: Mapping[UnitId, int | None], newest: int, lag: int) -> dict[UnitId, int]:
    """The last step that may learn each unit. One that is not started yet would start on the newest weights, at the earliest."""
    return {unit: (newest if version is None else version) + lag for unit, version in started.items()}
