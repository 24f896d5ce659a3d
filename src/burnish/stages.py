"""The three stages of a walk: tasks are drawn, replies are sampled and scored, and the weights learn from them.

Without a lag they follow each other. With one, the middle stage of a later step runs beside the last stage of this one
(run/pipeline.py): draw and learn stay with the thread that owns the weights and the memories.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from burnish.learn.learn import learn
from burnish.method import Phase
from burnish.nouns import Group, Task
from burnish.parts import Part, Rollout
from burnish.publish.publish import publish
from burnish.refusal import NotFinite, require_finite_scores
from burnish.step import Dropped, Notes, Step

if TYPE_CHECKING:
    from burnish.placed.ledger import Born

Seconds = dict[str, float]
Trail = list[tuple[str, int]]  # how many traces each part left


@dataclass
class Sampled:
    """What the first two stages made of one walk: groups with scores, and the traces that were taken out on the way.

    born: where samples are accounted for one by one, all that there were.
    """

    groups: list[Group]
    dropped: list[Dropped] = field(default_factory=list)
    born: list[Born] = field(default_factory=list)


def draw_tasks(phase: Phase, step: Step, seconds: Seconds) -> list[Task]:
    """The first stage: draw."""
    with timed(seconds, "draw"):
        return phase.draw.call(step)


def sample_and_score(phase: Phase, tasks: list[Task], step: Step, seconds: Seconds, trail: Trail) -> list[Group]:
    """The second stage: rollout -> score. Scores that have to be waited for are begun as groups are written."""
    if phase.rollout.asks is not None:  # what it writes is what is scored, as it is
        step.eager = tuple(atom.begin for atom in phase.score if atom.begin is not None)
    groups = roll_out(phase, tasks, step, seconds)
    return score_groups(phase, groups, step, seconds, trail)


def roll_out(phase: Phase, tasks: list[Task], step: Step, seconds: Seconds) -> list[Group]:
    """The first half of the second stage: rollout."""
    with timed(seconds, "rollout"):
        return _finite(phase.rollout, tasks, step) if tasks or phase.rollout.state else []


def score_groups(phase: Phase, groups: list[Group], step: Step, seconds: Seconds, trail: Trail) -> list[Group]:
    """The second half: score."""
    groups = through(phase.score, "score", groups, step, seconds, trail)
    note_samples(groups, step.notes)
    return groups


def learn_from(phase: Phase, groups: list[Group], step: Step, seconds: Seconds, trail: Trail) -> list[Group]:
    """The third stage: select -> credit -> learn -> publish."""
    for room in ("select", "credit"):
        groups = through(getattr(phase, room), room, groups, step, seconds, trail)
    step.notes.count("traces", sum(len(group.traces) for group in groups))
    if step.settings.lag or step.settings.chunk:
        _note_staleness(groups, step)
    with timed(seconds, "learn"):
        learn(groups, phase.learn, step)
    if phase.draw.saw is not None:
        phase.draw.saw(groups, step)
    with timed(seconds, "publish"):
        publish(step.cast, phase.learn.trainees, step.clock, step.notes)
    return groups


def through(
    parts: Iterable[Part], room: str, groups: list[Group], step: Step, seconds: Seconds, trail: Trail
) -> list[Group]:
    """The groups through the parts of a room, one after the other."""
    for atom in parts:
        with timed(seconds, room):
            groups = _finite(atom, groups, step)
        trail.append((f"{atom.name} in {room}", sum(len(group.traces) for group in groups)))
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


def note_samples(groups: list[Group], notes: Notes) -> None:
    """The numbers every method has, of all that was sampled: scores, lengths, how many replies were cut off."""
    scores: dict[str, list[float]] = {}
    written: list[int] = []
    replies = cut_off = 0
    for trace in (trace for group in groups for trace in group.traces):
        said = [len(turn) for turn in trace.turns if turn.author == "policy"]
        if not said:
            continue
        written += said
        replies += 1
        cut_off += trace.note.get("stopped") == "length"
        for name, value in trace.scores.items():
            scores.setdefault(name, []).append(value)
    if not replies:
        return
    for name, values in scores.items():
        notes.add(name if name in ("reward", "correct") else f"score/{name}", sum(values), len(values))
    notes.add("length", sum(written), len(written))
    notes.add("cut_off", cut_off, replies)
    notes.count("sampled_tokens", sum(written))


def _note_staleness(groups: list[Group], step: Step) -> None:
    """By how many versions the weights that learn are ahead of those that wrote what is learned, token by token."""
    if "policy" not in step.cast.members:
        return
    now = step.cast["policy"].version
    for trace in (trace for group in groups for trace in group.traces):
        for turn in trace.turns:
            if turn.author == "policy" and turn.versions is not None:
                step.notes.add("staleness", float((now - turn.versions).sum()), len(turn))


class timed:  # noqa: N801 - reads as a word in a with statement
    """Adds the seconds of its block to seconds[room]."""

    def __init__(self, seconds: Seconds, room: str) -> None:
        self.seconds, self.room = seconds, room

    def __enter__(self) -> None:
        self.start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds[self.room] = self.seconds.get(self.room, 0.0) + time.perf_counter() - self.start
