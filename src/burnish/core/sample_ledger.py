"""The ledger of a run on Ray: every sample by its id, and its fate, once each.

A sample's id is the step whose tasks were drawn, the pass (`walk`), the unit of work, the task's place in the unit, and
the sample's number among those of the task. Its fate is "learned", or the name of the part that dropped it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from burnish.core.step import Step
from burnish.core.types import Group, TraceId, Turn

if TYPE_CHECKING:
    from burnish.core.pending_step import Sampled

LEARNED, REFUSED, UNKNOWN = "learned", "refused update", ""


class UnitId(NamedTuple):
    """A unit of work: the step that its tasks were drawn for, the pass (`walk`) of that step, and its number in it."""

    drawn: int
    walk: int
    unit: int

    def __str__(self) -> str:
        return f"{self.drawn + 1}/{self.walk}/{self.unit}"


class UnitRow(NamedTuple):
    """A unit in the run store.

    version  steps learned by the weights that it was sampled from
    asked    how often it was assigned to a sampler
    late     ignored results: the unit had one already
    """

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


class SampleFate(NamedTuple):
    """A sample in the run store, written at the end of its step."""

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
class SampleBirth:
    """A new sample: what it was asked for, the id of its trace (which copies share), and its turns."""

    unit: UnitId
    place: int
    sample: int
    task: str
    id: TraceId
    turns: tuple[Turn, ...]

    @property
    def version(self) -> int:
        """Version of the weights that sampled its last token; 0 if none did."""
        versions = self.turns[-1].versions
        return int(versions[-1]) if versions is not None and len(versions) else 0


def births(unit: UnitId, groups: Iterable[Group]) -> list[SampleBirth]:
    """The samples of a unit after its rollout: one group per task, in the order of the tasks."""
    return [
        SampleBirth(unit, place, number, group.task.key, trace.id, trace.turns)
        for place, group in enumerate(groups)
        for number, trace in enumerate(group.traces)
    ]


def settle(born: Iterable[SampleBirth], step_number: int, groups: list[Group], step: Step) -> list[SampleFate]:
    """The fate of each sample at the end of its step: learned from, rejected with its update, or dropped by a part."""
    born = list(born)
    if not born:
        return []
    fates = {trace.id: LEARNED for group in groups for trace in group.traces}
    fates |= {t.id: REFUSED for refusal in step.refusals for group in refusal.groups for t in group.traces}
    fates |= {dropped.trace.id: dropped.part for dropped in step.dropped}
    return [
        SampleFate(
            step_number,
            *one.unit,
            one.place,
            one.sample,
            one.task,
            sum(map(len, one.turns[1:])),
            one.version,
            fates.get(one.id, UNKNOWN),
        )
        for one in born
    ]


def born_to_record(walk: Sampled) -> list[list[object]]:
    """Samples as JSON-able values; each refers to its trace by position, in a group or among the dropped ones."""
    where: dict[TraceId, list[int]] = {}
    for i, group in enumerate(walk.groups):
        for j, trace in enumerate(group.traces):
            where[trace.id] = [i, j]
    for k, dropped in enumerate(walk.dropped):
        where.setdefault(dropped.trace.id, [-1, k])
    return [[*b.unit, b.place, b.sample, b.task, *where[b.id]] for b in walk.born if b.id in where]


def born_from_record(record: list[list[Any]], walk: Sampled) -> list[SampleBirth]:
    """The inverse of `born_to_record`, for the traces of a restored pass."""
    born = []
    for drawn, number, unit, place, sample, task, i, j in record:
        trace = walk.dropped[j].trace if i < 0 else walk.groups[i].traces[j]
        born.append(SampleBirth(UnitId(drawn, number, unit), place, sample, task, trace.id, trace.turns))
    return born
