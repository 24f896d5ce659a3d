"""The loop. It walks the rooms, and knows no method."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field

from burnish.cast.stage import Cast
from burnish.method import Method, Phase
from burnish.nouns import Clock, Group
from burnish.placed.ledger import Settled, UnitRow, settle
from burnish.refusal import Refusal
from burnish.rollout.chunked import UNFINISHED, chunked
from burnish.run.garbage import left_alone
from burnish.run.pipeline import Ahead, Pipeline, SamplesAhead
from burnish.schedules import at
from burnish.stages import Sampled, Seconds, Trail, draw_tasks, learn_from, sample_and_score
from burnish.step import Dropped, Looks, Settings, Step

PATIENCE = 20  # empty steps in a row before the run stops and says why
SETTLED = 2  # steps after which a run has imported and made most of what it needs


@dataclass
class Report:
    """What one step did: numbers that a rerun repeats exactly, seconds that it does not, the groups of each phase, and the
    updates that were refused because a number in them was none."""

    clock: Clock
    metrics: dict[str, float]
    seconds: dict[str, float]
    groups: dict[str, list[Group]] = field(default_factory=dict)
    dropped: dict[str, list[Dropped]] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    looks: dict[str, Looks] = field(default_factory=dict)  # what learning saw on its way, by phase
    memory: float = 0.0  # MiB that the process holds after the step
    ledger: list[Settled] = field(default_factory=list)  # what became of every sample, where they are accounted for
    units: list[UnitRow] = field(default_factory=list)


def loop(
    method: Method,
    cast: Cast,
    settings: Settings,
    *,
    steps: int,
    seed: int = 0,
    start: int = 0,
    pipeline: SamplesAhead | None = None,
) -> Iterator[Report]:
    """Steps start, start + 1, ..., steps - 1 of a run, one report each. Stop asking and it stops.

    pipeline: with settings.lag, what samples ahead; one that a checkpoint was read into goes on where that run was.
    With settings.chunk the method's rollouts write in chunks; a method that is `chunked` already keeps what waits in it.
    """
    if settings.chunk:
        method = chunked(method)
    if pipeline is None and settings.lag:
        pipeline = Pipeline(method, cast, settings)
    empty = 0
    with pipeline or nullcontext(), left_alone() as leave_alone:
        for number in range(start, steps):
            if number == start + SETTLED:
                leave_alone()
            clock = Clock(number, steps, seed)
            now = pipeline.take(clock) if pipeline else Ahead(number)
            ended: dict[str, list[Group]] = {}
            dropped: dict[str, list[Dropped]] = {}
            looks: dict[str, Looks] = {}
            for phase in method.phases:
                for tick in range(round(at(phase.times, clock))):
                    step = Step(clock.at(tick=tick), cast, settings, now.notes, phase.name, now.refusals)
                    sampled = now.walks.pop(0) if phase.name == now.phase and now.walks else None
                    ended[phase.name] = walk(phase, step, now.seconds, now.trail, sampled)
                    dropped[phase.name], looks[phase.name] = step.dropped, step.looks
                    if sampled is not None:
                        now.ledger += settle(sampled.born, number, ended[phase.name], step)
            metrics = {"step": number, **now.notes.values()}
            nothing = now.trail and not any(n for _, n in now.trail[-1:])
            empty = empty + 1 if nothing and not now.refusals and not metrics.get(UNFINISHED) else 0
            if empty >= PATIENCE:
                raise ValueError(f"{empty} steps in a row had nothing left to learn from: {_where_lost(now.trail)}")
            yield Report(
                clock, metrics, now.seconds, ended, dropped, now.refusals, looks, ledger=now.ledger, units=now.units
            )


def walk(phase: Phase, step: Step, seconds: Seconds, trail: Trail, sampled: Sampled | None = None) -> list[Group]:
    """draw -> rollout -> score -> select -> credit -> learn -> publish. `trail` records how many traces each room left.

    sampled: what the first three rooms made of this walk already.
    """
    if sampled is None:
        groups = sample_and_score(phase, draw_tasks(phase, step, seconds), step, seconds, trail)
    else:
        groups = sampled.groups
        step.dropped += sampled.dropped
    return learn_from(phase, groups, step, seconds, trail)


def _where_lost(trail: Trail) -> str:
    for (_, before), (name, after) in zip(trail, trail[1:], strict=False):
        if before and not after:
            return f"{name} removed all of the last {before} traces; loosen it, or choose tasks on which replies differ"
    return "the draw brought no tasks or no term claims any token; check the task and its members"
