"""The training loop: it passes tasks through the seven stages and knows no method.

    draw -> rollout -> score -> select -> credit -> learn -> publish

`loop` runs steps, `run_phase` one pass through the stages. The functions below them run one part of a pass each,
because sampling may run ahead of learning (run/pipeline.py) or in other processes (distributed/ray): draw and learn
stay with the thread that owns the weights and the stores; rollout and score may run elsewhere. Of a run with several
ranks (models/ranks.py) each rank runs this loop, and rollout and score are divided among them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from burnish.core.learners import apart
from burnish.core.method import Method, Phase
from burnish.core.parts import Part, Rollout, split_score
from burnish.core.pending_step import PartialStep, Sampled, SampleSource, Seconds, Trail
from burnish.core.prefetch import Prefetcher
from burnish.core.rejected import NotFinite, RejectedUpdate, require_finite_scores
from burnish.core.sample_ledger import SampleFate, UnitRow, settle
from burnish.core.schedules import at
from burnish.core.sharded_pass import divided, fingerprint
from burnish.core.step import UNFINISHED, Dropped, Notes, Settings, Step, TokenEntropies
from burnish.core.types import Clock, Group, Task
from burnish.util.gc import gc_freezer
from burnish.util.threads import quick_switches

if TYPE_CHECKING:
    from burnish.models.build import Models

MAX_EMPTY_STEPS = 20  # consecutive steps with nothing to learn from, after which the run stops with an error
PAST = "past"  # a snapshot of the policy that samples in its place
WARM_STEPS = 2  # steps after which a run has imported and allocated most of what it needs


@dataclass
class Report:
    """The result of one step. A rerun repeats the metrics exactly, the seconds not.

    groups, dropped, looks  by phase: what was learned from, what was taken out, per-token policy entropies
    refusals                updates rejected as non-finite
    memory                  resident memory of the process after the step, in MiB
    ledger, units           the fate of every sample, where samples are accounted for one by one
    """

    clock: Clock
    metrics: dict[str, float]
    seconds: dict[str, float]
    groups: dict[str, list[Group]] = field(default_factory=dict)
    dropped: dict[str, list[Dropped]] = field(default_factory=dict)
    refusals: list[RejectedUpdate] = field(default_factory=list)
    looks: dict[str, TokenEntropies] = field(default_factory=dict)
    memory: float = 0.0
    ledger: list[SampleFate] = field(default_factory=list)
    units: list[UnitRow] = field(default_factory=list)


def loop(
    method: Method,
    models: Models,
    settings: Settings,
    *,
    steps: int,
    seed: int = 0,
    start: int = 0,
    pipeline: SampleSource | None = None,
) -> Iterator[Report]:
    """Yield one Report per step, for steps start, start + 1, ..., steps - 1. Closing the generator ends the run.

    pipeline: where the samples of a step come from when settings.lag is not 0 (run/pipeline.py makes one)
    """
    if settings.lag and pipeline is None:
        raise ValueError(f"lag is {settings.lag}, but no pipeline samples ahead; pass pipeline=Pipeline(...)")
    if settings.sampling is None:
        settings = replace(settings, sampling=method.sampled())
    empty = 0
    ahead = None if pipeline else Prefetcher(method, models, settings, steps, seed)
    with pipeline or nullcontext(), ahead or nullcontext(), quick_switches(), gc_freezer() as freeze_objects:
        for number in range(start, steps):
            if number == start + WARM_STEPS:
                freeze_objects()
            clock = Clock(number, steps, seed)
            now = pipeline.take(clock) if pipeline else PartialStep(number)
            report = _run_step(method, models, settings, clock, now, ahead)
            nothing = now.trail and not any(n for _, n in now.trail[-1:])
            empty = empty + 1 if nothing and not now.refusals and not report.metrics.get(UNFINISHED) else 0
            if empty >= MAX_EMPTY_STEPS:
                raise ValueError(f"{empty} steps in a row had nothing left to learn from: {_where_lost(now.trail)}")
            yield report


def _run_step(
    method: Method, models: Models, settings: Settings, clock: Clock, now: PartialStep, ahead: Prefetcher | None
) -> Report:
    """All phases of one step, each as often as its `times` says; `now` holds what has been sampled already, `ahead`
    what was drawn and given."""
    if ahead is not None:
        ahead.begin(clock.step)
    for model in models:
        model.begin_step(clock.step)
    groups: dict[str, list[Group]] = {}
    dropped: dict[str, list[Dropped]] = {}
    looks: dict[str, TokenEntropies] = {}
    for phase in method.phases:
        for tick in range(round(at(phase.times, clock))):
            step = Step(
                clock.at(tick=tick), models, settings, now.notes, phase.name, now.refusals, product=method.product
            )
            sampled = now.passes.pop(0) if phase.name == now.phase and now.passes else None
            groups[phase.name] = run_phase(phase, step, now.seconds, now.trail, sampled, ahead)
            dropped[phase.name], looks[phase.name] = step.dropped, step.looks
            if sampled is not None:
                now.ledger += settle(sampled.born, clock.step, groups[phase.name], step)
    for model in models:
        model.begin_step(None)
    metrics = {"step": clock.step + 1, **now.notes.values()}
    return Report(clock, metrics, now.seconds, groups, dropped, now.refusals, looks, ledger=now.ledger, units=now.units)


def run_phase(
    phase: Phase,
    step: Step,
    seconds: Seconds,
    trail: Trail,
    sampled: Sampled | None = None,
    ahead: Prefetcher | None = None,
) -> list[Group]:
    """One pass through the seven stages. `trail` records how many traces each part left.

    sampled: the result of draw, rollout and score, where they have run already
    ahead: has the result of draw, or of draw and rollout, where a thread has made them already
    """
    if sampled is None:
        with timed(seconds, "draw"):
            made = ahead.take(phase, step.clock) if ahead is not None else None
        if made is not None and made.groups is not None:
            groups = score_groups(phase, made.groups, step, seconds, trail)
        else:
            tasks = draw_tasks(phase, step, seconds) if made is None else made.tasks
            groups = sample_and_score(phase, tasks, step, seconds, trail)
    else:
        groups = sampled.groups
        step.dropped += sampled.dropped
    return learn_from(phase, groups, step, seconds, trail)


def draw_tasks(phase: Phase, step: Step, seconds: Seconds) -> list[Task]:
    """draw"""
    with timed(seconds, "draw"):
        return phase.draw.call(step)


def sample_and_score(phase: Phase, tasks: list[Task], step: Step, seconds: Seconds, trail: Trail) -> list[Group]:
    """rollout -> score. Scores that take a while (reward functions) are started as soon as a group is finished.

    Several ranks divide the tasks, unless the rollout must see all of them: it has a state, or is `whole`.
    """
    (early, late), ranks = split_score(phase.score), step.models.ranks

    def work(tasks: list[Task], step: Step, outcome: PartialStep) -> list[Group]:
        if phase.rollout.asks is not None:  # the groups that it finishes reach score unchanged
            step.eager = tuple(atom.begin for atom in phase.score if atom.begin is not None)
        groups = roll_out(phase, tasks, step, outcome.seconds)
        if not groups and ranks.connected:  # there are more ranks than tasks
            return groups
        return through(early, "score", groups, step, outcome.seconds, outcome.trail)

    if ranks.divides and not phase.rollout.state and not phase.rollout.whole:
        groups = divided(ranks, tasks, work, step, seconds, trail)
    else:
        groups = work(tasks, step, PartialStep(step.clock.step, step.phase, seconds=seconds, trail=trail))
    groups = through(late, "score", groups, step, seconds, trail)
    note_by_learner(groups, step)
    return groups


def roll_out(phase: Phase, tasks: list[Task], step: Step, seconds: Seconds) -> list[Group]:
    """rollout"""
    with timed(seconds, "rollout"):
        return _finite(phase.rollout, tasks, step) if tasks or phase.rollout.state else []


def score_groups(phase: Phase, groups: list[Group], step: Step, seconds: Seconds, trail: Trail) -> list[Group]:
    """score"""
    groups = through(phase.score, "score", groups, step, seconds, trail)
    note_by_learner(groups, step)
    return groups


def learn_from(phase: Phase, groups: list[Group], step: Step, seconds: Seconds, trail: Trail) -> list[Group]:
    """select -> credit -> learn -> publish"""
    for stage in ("select", "credit"):
        groups = through(getattr(phase, stage), stage, groups, step, seconds, trail)
        if stage == "select" and step.models.ranks.connected:
            step.models.ranks.require_same("the traces to learn from", fingerprint(groups))
    step.notes.count("traces", sum(len(group.traces) for group in groups))
    if step.settings.lag or step.settings.chunk:
        for own, inside in apart(groups, step):
            _note_staleness(own, inside)
    with timed(seconds, "learn"):
        phase.learn.call(groups, step)
    if phase.draw.saw is not None:
        phase.draw.saw(groups, step)
    with timed(seconds, "publish"):
        phase.publish.call(phase.learn.trainees, step)
    return groups


def through(
    parts: Iterable[Part], stage: str, groups: list[Group], step: Step, seconds: Seconds, trail: Trail
) -> list[Group]:
    """The groups after all parts of a stage."""
    for atom in parts:
        with timed(seconds, stage):
            groups = _finite(atom, groups, step)
        trail.append((f"{atom.name} in {stage}", sum(len(group.traces) for group in groups)))
    return groups


def _finite(part: Rollout | Part, given: list[Any], step: Step) -> list[Group]:
    """The groups after a part. If it wrote a NaN or infinite score, the batch is rejected and no group is left."""
    groups = [item for item in given if isinstance(item, Group)]
    try:
        groups = step.through(part, given) if isinstance(part, Part) else part.call(given, step)
        require_finite_scores(groups, part.name)
    except NotFinite as why:
        step.refuse(str(why), groups)
        step.drop(groups, f"refused after {part.name}")
        return []
    return groups


def note_by_learner(groups: list[Group], step: Step) -> None:
    """Add the metrics of samples, those of each trained model by itself."""
    for own, inside in apart(groups, step):
        note_samples(own, inside.notes, step.product)


def note_samples(groups: list[Group], notes: Notes, author: str) -> None:
    """Add the metrics that every method has, of samples by the author or its snapshot: scores, lengths, cut-offs."""
    scores: dict[str, list[float]] = {}
    written: list[int] = []
    replies = cut_off = 0
    for trace in (trace for group in groups for trace in group.traces):
        lengths = [len(turn) for turn in trace.turns if turn.author in (author, PAST)]
        if not lengths:
            continue
        written += lengths
        replies += 1
        cut_off += trace.note.get("stopped") == "length"
        for name, value in trace.scores.items():
            scores.setdefault(name, []).append(value)
    if not replies:
        return
    _note_diversity(groups, notes, author)
    for name, values in scores.items():
        own = name in ("reward", "correct") or name.startswith("reward/")
        notes.add(name if own else f"score/{name}", sum(values), len(values))
    notes.add("length", sum(written), len(written))
    notes.add("cut_off", cut_off, replies)
    notes.count("sampled_tokens", sum(written))


def _note_diversity(groups: list[Group], notes: Notes, author: str) -> None:
    """Add the metrics distinct_replies and distinct_bigrams, of groups with several replies by the author."""
    for group in groups:
        turns = [[t.tokens.numpy() for t in trace.turns if t.author in (author, PAST)] for trace in group.traces]
        said = [own for own in turns if own]
        if len(said) < 2:
            continue
        notes.add("distinct_replies", len({b"".join(tokens.tobytes() for tokens in own) for own in said}) / len(said))
        bigrams = np.concatenate([(tokens[:-1] << 32) + tokens[1:] for own in said for tokens in own])
        if len(bigrams):
            bigrams.sort()  # sorting is several times as fast as the hash table of np.unique
            notes.add("distinct_bigrams", (1 + np.count_nonzero(bigrams[1:] != bigrams[:-1])) / len(bigrams))


def _note_staleness(groups: list[Group], step: Step) -> None:
    """Add the metric staleness: per token, weight versions between sampling it and learning from it."""
    now = step.models[step.product].version
    for trace in (trace for group in groups for trace in group.traces):
        for turn in trace.turns:
            if turn.author == step.product and turn.versions is not None:
                step.notes.add("staleness", float((now - turn.versions).sum()), len(turn))


def _where_lost(trail: Trail) -> str:
    for (_, before), (name, after) in zip(trail, trail[1:], strict=False):
        if before and not after:
            return f"{name} removed all of the last {before} traces; loosen it, or choose tasks on which replies differ"
    return "the draw brought no tasks or no term claims any token; check the task and what its terms train on"


class timed:  # noqa: N801 - reads as a word in a with statement
    """Adds the seconds of its block to seconds[stage]."""

    def __init__(self, seconds: Seconds, stage: str) -> None:
        self.seconds, self.stage = seconds, stage

    def __enter__(self) -> None:
        self.start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds[self.stage] = self.seconds.get(self.stage, 0.0) + time.perf_counter() - self.start
