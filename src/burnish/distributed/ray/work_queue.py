"""The work queue: which unit waits for which role, and which are finished. No Ray and no waiting here.

A unit waits for a sampler, is sampled, waits for a grader, is scored, and is finished. The unit of a lost worker is put
back; a second result of the same unit is counted and ignored.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable

from burnish.core.pending_step import PartialStep
from burnish.core.sample_ledger import UnitId, UnitRow
from burnish.distributed.ray.units import Published, Unit

SAMPLER, GRADER = "sampler", "grader"


class WorkQueue:
    """The units of one run. `changed` is its lock, and is notified when a unit is finished.

    graded: phases whose units need a grader; units of other phases are finished after sampling.
    """

    def __init__(self, graded: Iterable[str] = ()) -> None:
        self.changed = threading.Condition()
        self.graded = frozenset(graded)
        self.units: dict[UnitId, Unit] = {}
        self.waiting: dict[str, deque[UnitId]] = {SAMPLER: deque(), GRADER: deque()}
        self.made: dict[UnitId, PartialStep] = {}  # sampled, not yet scored
        self.finished: dict[UnitId, PartialStep] = {}  # in the order in which they finished
        self.version: dict[UnitId, int] = {}  # steps learned by the weights that a unit was started on
        self.asked: Counter[UnitId] = Counter()
        self.late: Counter[UnitId] = Counter()
        self.newest: Published | None = None
        self._flagged: set[tuple[str, int]] = set()

    def add(self, unit: Unit) -> None:
        """Queue a unit for sampling."""
        with self.changed:
            assert unit.id not in self.units, f"unit {unit.id} is queued twice"
            self.units[unit.id] = unit
            self.waiting[SAMPLER].append(unit.id)

    def next_unit(self, role: str) -> Unit | None:
        """The next unit for a sampler or a grader, or None.

        A unit without weights (--order free) gets the newest now.
        """
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

    def accept(self, role: str, unit_id: UnitId, made: PartialStep) -> bool:
        """Accept a result. False if the unit has one already: it is counted and ignored."""
        with self.changed:
            waiting_for = unit_id in self.units and unit_id not in self.finished
            if not waiting_for or (role == SAMPLER and unit_id in self.made):
                self.late[unit_id] += 1
                return False
            if role == SAMPLER and self.units[unit_id].phase in self.graded:
                self.made[unit_id] = made
                self.waiting[GRADER].append(unit_id)
                return True
            self.made.pop(unit_id, None)
            self.finished[unit_id] = made
            self.changed.notify_all()
            return True

    def put_back(self, role: str, unit_id: UnitId) -> bool:
        """Put the unit of a lost worker first in its queue. False if it needs no work any more."""
        with self.changed:
            settled = (
                unit_id not in self.units or unit_id in self.finished or (role == SAMPLER and unit_id in self.made)
            )
            if settled or unit_id in self.waiting[role]:
                return False
            self.waiting[role].appendleft(unit_id)
            return True

    def restore(self, unit: Unit, made: PartialStep, version: int) -> None:
        """Add a finished unit from a checkpoint."""
        with self.changed:
            self.units[unit.id], self.finished[unit.id], self.version[unit.id] = unit, made, version
            self.asked[unit.id] += 1

    def remove(self, unit_ids: Iterable[UnitId], step: int) -> list[tuple[PartialStep, UnitRow]]:
        """Remove the units that step `step` learns from; return their outcomes and their rows for the run store."""
        removed = []
        with self.changed:
            for unit_id in unit_ids:
                unit, made = self.units.pop(unit_id), self.finished.pop(unit_id)
                graded = int(unit.phase in self.graded)
                version, times, late = self.version.pop(unit_id, 0), self.asked.pop(unit_id), self.late.pop(unit_id, 0)
                row = UnitRow(step, *unit_id, len(unit.tasks), version, times, 1, graded, late)
                removed.append((made, row))
        return removed

    def unfinished(self) -> list[UnitId]:
        """The units that are not finished."""
        return [unit_id for unit_id in self.units if unit_id not in self.finished]
