"""Audit of a run's ledger: checks that every sample was sampled, scored and learned from (or dropped) exactly once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from burnish.core.sample_ledger import LEARNED, UnitId, UnitRow
from burnish.store.reader import RunStore, open_store


@dataclass(frozen=True)
class Audit:
    """Counts, and descriptions of what is wrong (empty if the ledger is consistent).

    again    units that were assigned more than once, because their worker was lost
    late     results that arrived after another result of the same unit
    stalest  the largest age of a unit when it was learned from, in steps
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
        text = (
            f"{self.samples} samples in {self.units} units: {self.learned} learned, {self.dropped} dropped by a "
            f"named part; {self.again} units assigned again, {self.late} late results ignored, at most {self.stalest} "
            "steps old"
        )
        return f"{text}; {len(self.wrong)} things wrong: {'; '.join(self.wrong[:3])}" if self.wrong else text


def audit(folder: str | Path) -> Audit:
    """Check the ledger of a run folder against its units and steps."""
    with open_store(folder, brief=True) as store:
        units = [UnitRow(**row) for row in store.sql("SELECT * FROM units ORDER BY drawn, walk, unit")]
        ages = [_age(row) for row in units]
        wrong = [*_units(store, units), *_samples(store, units)]
        fates = store.sql("SELECT fate, count(*) AS n FROM ledger GROUP BY fate")
        samples, learned = sum(f["n"] for f in fates), sum(f["n"] for f in fates if f["fate"] == LEARNED)
        again, late = sum(row.asked > 1 for row in units), sum(row.late for row in units)
        return Audit(len(units), samples, learned, samples - learned, again, late, max(ages, default=0), tuple(wrong))


def _name(drawn: int, walk: int, unit: int) -> UnitId:
    """The id of a unit in the store, which counts steps from 1."""
    return UnitId(drawn - 1, walk, unit)


def _age(row: UnitRow) -> int:
    """Steps between the weights that a unit was sampled from and those that learned from it."""
    return row.step - 1 - row.version


def _units(store: RunStore, units: list[UnitRow]) -> list[str]:
    """Errors in units: every step has units, numbered without gaps, each sampled once, none older than the lag."""
    config = store.config()
    wrong = []
    steps = {row["step"] for row in store.sql("SELECT DISTINCT step FROM metrics")}
    if missing := steps - {row.step for row in units}:
        wrong.append(f"step {min(missing)} learned from no unit")
    if extra := {row.step for row in units} - steps:
        wrong.append(f"units were learned in step {min(extra)}, which has no metrics")
    if store.state() == "finished" and (unasked := steps - {row.drawn for row in units}):
        wrong.append(f"no unit was drawn for step {min(unasked)}")
    passes: dict[tuple[int, int], list[int]] = {}
    for row in units:
        passes.setdefault((row.drawn, row.walk), []).append(row.unit)
        name = _name(row.drawn, row.walk, row.unit)
        if row.sampled != 1 or row.scored > 1 or row.asked < 1:
            wrong.append(f"unit {name} was asked {row.asked}, sampled {row.sampled} and scored {row.scored} times")
        if _age(row) > config.get("lag", 0):
            wrong.append(f"unit {name} was {_age(row)} steps old when it was learned")
        if config.get("order", "fixed") == "fixed" and row.step != row.drawn:
            wrong.append(f"unit {name} was learned in step {row.step}, out of order")
    for (drawn, pass_number), numbers in passes.items():
        if sorted(numbers) != list(range(len(numbers))):
            wrong.append(f"the units of step {drawn}, pass {pass_number} are {sorted(numbers)}: some are missing")
    return wrong


def _samples(store: RunStore, units: list[UnitRow]) -> list[str]:
    """Errors in samples: every task of every unit has samples, numbered without gaps, each learned from or dropped."""
    wrong = []
    samples: dict[UnitId, dict[int, list[int]]] = {}
    steps: dict[UnitId, set[int]] = {}
    for entry in store.sql("SELECT step, drawn, walk, unit, place, sample, fate FROM ledger"):
        name = _name(entry["drawn"], entry["walk"], entry["unit"])
        samples.setdefault(name, {}).setdefault(entry["place"], []).append(entry["sample"])
        steps.setdefault(name, set()).add(entry["step"])
        if not entry["fate"]:
            wrong.append(
                f"sample {entry['sample']} of task {entry['place']} in unit {name} is neither learned nor dropped"
            )
    for row in units:
        name = _name(row.drawn, row.walk, row.unit)
        by_task = samples.pop(name, {})
        if sorted(by_task) != list(range(row.tasks)):
            wrong.append(f"unit {name} has {row.tasks} tasks, but samples of {len(by_task)}")
        if any(sorted(numbers) != list(range(len(numbers))) for numbers in by_task.values()):
            wrong.append(f"samples of unit {name} are missing")
        if steps.get(name, {row.step}) != {row.step}:
            wrong.append(f"samples of unit {name} are in another step than the unit")
    return [*wrong, *(f"there are samples of unit {name}, which does not exist" for name in samples)]
