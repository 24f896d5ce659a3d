"""The ledger: every sample of a placed run by its id, from its birth to what became of it, once each.

A sample's id says what it was asked for: the step whose tasks were drawn, the walk, the unit of work, the task's place in
the unit, and the sample's own place among those of the task. What became of it is "learned", or the part that took it out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from burnish.nouns import Group, Turn
from burnish.stages import Sampled
from burnish.step import Step

LEARNED, REFUSED, UNKNOWN = "learned", "refused update", ""


class UnitId(NamedTuple):
    """Which unit of work: the step that its tasks were drawn for, the walk of that step, and its number in the walk."""

    drawn: int
    walk: int
    unit: int

    def __str__(self) -> str:
        return f"{self.drawn + 1}/{self.walk}/{self.unit}"


class UnitRow(NamedTuple):
    """A unit in the run store. `version`: steps learned by the weights that it was sampled from. Results are taken once;
    `asked` counts how often it was given out, `late` the results that came after the one that was taken."""

    step: int
    drawn: int
    walk: int
    unit: int
    tasks: int
    version: int
    asked: int
    sampled: int
    scored: int
    late: int


class Settled(NamedTuple):
    """A sample in the run store, when its step has ended."""

    step: int
    drawn: int
    walk: int
    unit: int
    place: int
    sample: int
    task: str
    length: int
    version: int
    fate: str


@dataclass(frozen=True, eq=False)
class Born:
    """A sample that was written: its id, and its turns, by which it is known from then on. Copies of a trace share them."""

    unit: UnitId
    place: int
    sample: int
    task: str
    turns: tuple[Turn, ...]

    @property
    def version(self) -> int:
        """The weights that wrote its last token; 0 where no weights did."""
        versions = self.turns[-1].versions
        return int(versions[-1]) if versions is not None and len(versions) else 0


def births(unit: UnitId, groups: Iterable[Group]) -> list[Born]:
    """The samples of a unit as its rollout left them: a group for each task, in the order of the tasks."""
    return [
        Born(unit, place, number, group.task.key, trace.turns)
        for place, group in enumerate(groups)
        for number, trace in enumerate(group.traces)
    ]


def settle(born: Iterable[Born], step_number: int, groups: list[Group], step: Step) -> list[Settled]:
    """What became of each sample when its step has ended: in the groups that were learned from, or taken out on the way."""
    born = list(born)
    if not born:
        return []
    fates = {id(trace.turns): LEARNED for group in groups for trace in group.traces}
    fates |= {id(t.turns): REFUSED for refusal in step.refusals for group in refusal.groups for t in group.traces}
    fates |= {id(dropped.trace.turns): dropped.part for dropped in step.dropped}
    return [
        Settled(
            step_number, *one.unit, one.place, one.sample, one.task, sum(map(len, one.turns[1:])), one.version,
            fates.get(id(one.turns), UNKNOWN),
        )
        for one in born
    ]  # fmt: skip


def born_to_record(walk: Sampled) -> list[list[Any]]:
    """Births as plain values: each points at its trace by where that stands, in a group or among the dropped."""
    where: dict[int, list[int]] = {}
    for i, group in enumerate(walk.groups):
        for j, trace in enumerate(group.traces):
            where[id(trace.turns)] = [i, j]
    for k, dropped in enumerate(walk.dropped):
        where.setdefault(id(dropped.trace.turns), [-1, k])
    return [[*b.unit, b.place, b.sample, b.task, *where[id(b.turns)]] for b in walk.born if id(b.turns) in where]


def born_from_record(record: list[list[Any]], walk: Sampled) -> list[Born]:
    """What `born_to_record` wrote down, on the traces of the walk that was read back."""
    found = []
    for drawn, number, unit, place, sample, task, i, j in record:
        trace = walk.dropped[j].trace if i < 0 else walk.groups[i].traces[j]
        found.append(Born(UnitId(drawn, number, unit), place, sample, task, trace.turns))
    return found
