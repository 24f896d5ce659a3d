"""The audit of a run's ledger: was every sample that was asked for sampled, scored and learned, once each?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from burnish.placed.ledger import LEARNED, UnitId, UnitRow
from burnish.report.store import Store, open_store


@dataclass(frozen=True)
class Audit:
    """What was counted, and what is wrong, in words; nothing is where `wrong` is empty.

    again  units that were given out more than once, because whoever had them was lost
    late   results that came after the one that was taken
    """

    units: int
    samples: int
    learned: int
    dropped: int
    again: int
    late: int
    stalest: int
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        found = f"{self.samples} samples in {self.units} units: {self.learned} learned, {self.dropped} dropped by a named part"
        found += (
            f"; {self.again} units given out again, {self.late} late results ignored, at most {self.stalest} steps old"
        )
        return f"{found}; {len(self.wrong)} things wrong: {'; '.join(self.wrong[:3])}" if self.wrong else found


def audit(folder: str | Path) -> Audit:
    """Check the ledger of the run in this folder against its units and its steps."""
    with open_store(folder) as store:
        units = [UnitRow(**row) for row in store.sql("SELECT * FROM units ORDER BY drawn, walk, unit")]
        ages = [row.step - row.version for row in units]
        wrong = [*_units(store, units), *_samples(store, units)]
        fates = store.sql("SELECT fate, count(*) AS n FROM ledger GROUP BY fate")
        samples, learned = sum(f["n"] for f in fates), sum(f["n"] for f in fates if f["fate"] == LEARNED)
        again, late = sum(row.asked > 1 for row in units), sum(row.late for row in units)
        return Audit(len(units), samples, learned, samples - learned, again, late, max(ages, default=0), tuple(wrong))


def _units(store: Store, units: list[UnitRow]) -> list[str]:
    """Every step has its units, numbered without a gap, each sampled once, none older than the lag allows."""
    config = store.config()
    wrong = []
    steps = {row["step"] for row in store.sql("SELECT DISTINCT step FROM metrics")}
    if missing := steps - {row.step for row in units}:
        wrong.append(f"step {min(missing) + 1} learned from no unit")
    if extra := {row.step for row in units} - steps:
        wrong.append(f"units were learned in step {min(extra) + 1}, which has no metrics")
    if store.state() == "finished" and (unasked := steps - {row.drawn for row in units}):
        wrong.append(f"nothing was asked for step {min(unasked) + 1}")
    walks: dict[tuple[int, int], list[int]] = {}
    for row in units:
        walks.setdefault((row.drawn, row.walk), []).append(row.unit)
        name = UnitId(row.drawn, row.walk, row.unit)
        if row.sampled != 1 or row.scored > 1 or row.asked < 1:
            wrong.append(f"unit {name} was asked {row.asked}, sampled {row.sampled} and scored {row.scored} times")
        if row.step - row.version > config.get("lag", 0):
            wrong.append(f"unit {name} was {row.step - row.version} steps old when it was learned")
        if config.get("order", "fixed") == "fixed" and row.step != row.drawn:
            wrong.append(f"unit {name} was learned in step {row.step + 1}, out of order")
    for (drawn, walk), numbers in walks.items():
        if sorted(numbers) != list(range(len(numbers))):
            wrong.append(f"the units of step {drawn + 1}, walk {walk} are {sorted(numbers)}: some are missing")
    return wrong


def _samples(store: Store, units: list[UnitRow]) -> list[str]:
    """Every task of every unit has samples, numbered without a gap, and each of them has a fate."""
    wrong = []
    found: dict[UnitId, dict[int, list[int]]] = {}
    steps: dict[UnitId, set[int]] = {}
    for one in store.sql("SELECT step, drawn, walk, unit, place, sample, fate FROM ledger"):
        name = UnitId(one["drawn"], one["walk"], one["unit"])
        found.setdefault(name, {}).setdefault(one["place"], []).append(one["sample"])
        steps.setdefault(name, set()).add(one["step"])
        if not one["fate"]:
            wrong.append(f"sample {one['sample']} of task {one['place']} in unit {name} is neither learned nor dropped")
    for row in units:
        name = UnitId(row.drawn, row.walk, row.unit)
        mine = found.pop(name, {})
        if sorted(mine) != list(range(row.tasks)):
            wrong.append(f"unit {name} was asked for {row.tasks} tasks, and has samples of {len(mine)}")
        if any(sorted(numbers) != list(range(len(numbers))) for numbers in mine.values()):
            wrong.append(f"samples of unit {name} are missing")
        if steps.get(name, {row.step}) != {row.step}:
            wrong.append(f"samples of unit {name} are in another step than the unit")
    return [*wrong, *(f"there are samples of unit {name}, which was never asked for" for name in found)]
