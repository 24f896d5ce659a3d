"""The loop. It walks the rooms, and knows no method."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from burnish.cast.stage import Cast
from burnish.learn.learn import learn
from burnish.method import Method, Phase
from burnish.nouns import Clock, Group
from burnish.parts import Part, Rollout
from burnish.publish.publish import publish
from burnish.refusal import NotFinite, Refusal, require_finite_scores
from burnish.schedules import at
from burnish.step import Dropped, Notes, Settings, Step

PATIENCE = 20  # empty steps in a row before the run stops and says why


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
    memory: float = 0.0  # MiB that the process holds after the step


def loop(
    method: Method, cast: Cast, settings: Settings, *, steps: int, seed: int = 0, start: int = 0
) -> Iterator[Report]:
    """Steps start, start + 1, ..., steps - 1 of a run, one report each. Stop asking and it stops."""
    empty = 0
    for number in range(start, steps):
        clock = Clock(number, steps, seed)
        notes = Notes()
        seconds: dict[str, float] = {}
        ended: dict[str, list[Group]] = {}
        dropped: dict[str, list[Dropped]] = {}
        trail: list[tuple[str, int]] = []
        refusals: list[Refusal] = []
        for phase in method.phases:
            for tick in range(round(at(phase.times, clock))):
                step = Step(clock.at(tick=tick), cast, settings, notes, phase.name, refusals)
                ended[phase.name] = walk(phase, step, seconds, trail)
                dropped[phase.name] = step.dropped
        empty = empty + 1 if trail and not any(n for _, n in trail[-1:]) and not refusals else 0
        if empty >= PATIENCE:
            raise ValueError(f"{empty} steps in a row had nothing left to learn from: {_where_lost(trail)}")
        yield Report(clock, {"step": number, **notes.values()}, seconds, ended, dropped, refusals)


def walk(phase: Phase, step: Step, seconds: dict[str, float], trail: list[tuple[str, int]]) -> list[Group]:
    """draw -> rollout -> score -> select -> credit -> learn -> publish. `trail` records how many traces each room left."""
    with _timed(seconds, "draw"):
        tasks = phase.draw.call(step)
    with _timed(seconds, "rollout"):
        groups = _finite(phase.rollout, tasks, step) if tasks else []
    for room in ("score", "select", "credit"):
        for atom in getattr(phase, room):
            with _timed(seconds, room):
                groups = _finite(atom, groups, step)
            trail.append((f"{atom.name} in {room}", sum(len(group.traces) for group in groups)))
        if room == "score":
            _note_samples(groups, step.notes)
    step.notes.count("traces", sum(len(group.traces) for group in groups))
    with _timed(seconds, "learn"):
        learn(groups, phase.learn, step)
    if phase.draw.saw is not None:
        phase.draw.saw(groups, step)
    with _timed(seconds, "publish"):
        publish(step.cast, phase.learn.trainees, step.clock, step.notes)
    return groups


def _finite(part: Rollout | Part, given: list, step: Step) -> list[Group]:
    """What the part makes of what it is given; nothing, and a refusal, where a score of it is NaN or infinite."""
    groups = [item for item in given if isinstance(item, Group)]
    try:
        groups = step.through(part, given) if isinstance(part, Part) else part.call(given, step)
        require_finite_scores(groups, part.name)
    except NotFinite as why:
        step.refuse(str(why), groups)
        step.drop(groups, f"refused after {part.name}")
        return []
    return groups


def _note_samples(groups: list[Group], notes: Notes) -> None:
    """The numbers every method has, of all that was sampled: scores, lengths, how many replies were cut off."""
    for trace in (trace for group in groups for trace in group.traces):
        said = [len(turn) for turn in trace.turns if turn.author == "policy"]
        if not said:
            continue
        for name, value in trace.scores.items():
            notes.add(name if name in ("reward", "correct") else f"score/{name}", value)
        notes.add("length", sum(said), len(said))
        notes.add("cut_off", trace.note.get("stopped") == "length")
        notes.count("sampled_tokens", sum(said))


def _where_lost(trail: list[tuple[str, int]]) -> str:
    for (_, before), (name, after) in zip(trail, trail[1:], strict=False):
        if before and not after:
            return f"{name} removed all of the last {before} traces; loosen it, or choose tasks on which replies differ"
    return "the draw brought no tasks or no term claims any token; check the task and its members"


class _timed:  # noqa: N801 - reads as a word in a with statement
    def __init__(self, seconds: dict[str, float], room: str) -> None:
        self.seconds, self.room = seconds, room

    def __enter__(self) -> None:
        self.start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds[self.room] = self.seconds.get(self.room, 0.0) + time.perf_counter() - self.start
