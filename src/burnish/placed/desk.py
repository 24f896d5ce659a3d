"""Who has which unit: given out, taken back, taken once. No Ray here, and no waiting: the crew drives it.

A unit waits for a sampler, is with one, waits for a grader, is with one, and is finished. Whoever is lost gives its unit
back; a second result of the same unit, however it came about, is counted and ignored.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable

from burnish.placed.ledger import UnitId, UnitRow
from burnish.placed.units import Published, Unit
from burnish.run.pipeline import Ahead

SAMPLER, GRADER = "sampler", "grader"


class Desk:
    """The accounts of one run. `changed` guards them, and is notified when a unit is finished.

    graded: phases whose replies go to a grader; those of others are finished when they are sampled.
    """

    def __init__(self, graded: Iterable[str] = ()) -> None:
        self.changed = threading.Condition()
        self.graded = frozenset(graded)
        self.units: dict[UnitId, Unit] = {}
        self.waiting: dict[str, deque[UnitId]] = {SAMPLER: deque(), GRADER: deque()}
        self.made: dict[UnitId, Ahead] = {}  # sampled, not yet scored
        self.finished: dict[UnitId, Ahead] = {}  # in the order in which they became so
        self.version: dict[UnitId, int] = {}  # of the weights that a unit was started on
        self.asked: Counter[UnitId] = Counter()
        self.late: Counter[UnitId] = Counter()
        self.newest: Published | None = None
        self._flagged: set[tuple[str, int]] = set()

    def ask(self, unit: Unit) -> None:
        """A unit is wanted."""
        with self.changed:
            assert unit.id not in self.units, f"unit {unit.id} is asked for twice"
            self.units[unit.id] = unit
            self.waiting[SAMPLER].append(unit.id)

    def give(self, role: str) -> Unit | None:
        """The next unit for a sampler or a grader; None where there is none. A free unit gets the newest weights now."""
        with self.changed:
            if not self.waiting[role]:
                return None
            unit = self.units[self.waiting[role].popleft()]
            if role == SAMPLER:
                unit.weights = unit.weights or self.newest
                if unit.weights is not None:
                    self.version[unit.id] = unit.weights.steps
                    unit.fresh = unit.fresh or unit.weights.key not in self._flagged
                    self._flagged.add(unit.weights.key)
                self.asked[unit.id] += 1
            return unit

    def take(self, role: str, place: UnitId, made: Ahead) -> bool:
        """A result comes in. False where it is not wanted any more: it is counted, and ignored."""
        with self.changed:
            known = place in self.units and place not in self.finished
            if not known or (role == SAMPLER and place in self.made):
                self.late[place] += 1
                return False
            if role == SAMPLER and self.units[place].phase in self.graded:
                self.made[place] = made
                self.waiting[GRADER].append(place)
                return True
            self.made.pop(place, None)
            self.finished[place] = made
            self.changed.notify_all()
            return True

    def back(self, role: str, place: UnitId) -> bool:
        """Whoever had the unit is lost: it is given out again, before all others. False where nobody needs it any more."""
        with self.changed:
            settled = place not in self.units or place in self.finished or (role == SAMPLER and place in self.made)
            if settled or place in self.waiting[role]:
                return False
            self.waiting[role].appendleft(place)
            return True

    def restored(self, unit: Unit, made: Ahead, version: int) -> None:
        """A unit that a checkpoint held, finished."""
        with self.changed:
            self.units[unit.id], self.finished[unit.id], self.version[unit.id] = unit, made, version
            self.asked[unit.id] += 1

    def remove(self, places: Iterable[UnitId], step: int) -> list[tuple[Ahead, UnitRow]]:
        """The outcomes that step `step` learns from, with their rows for the store; the desk forgets them."""
        found = []
        with self.changed:
            for place in places:
                unit, made = self.units.pop(place), self.finished.pop(place)
                graded = int(unit.phase in self.graded)
                row = UnitRow(
                    step, *place, len(unit.tasks), self.version.pop(place, 0), self.asked.pop(place), 1, graded,
                    self.late.pop(place, 0),
                )  # fmt: skip
                found.append((made, row))
        return found

    def open(self) -> list[UnitId]:
        """The units that were asked for and are not finished."""
        return [place for place in self.units if place not in self.finished]
