"""Evaluation of a run's product on held-out tasks.

A policy is evaluated by the accuracy of its greedy replies, with that of sampled ones beside it; a method that trains
nothing by the replies that it selects. A product that gives no replies (a reward model), or whose task has no verifier,
is evaluated by its own terms.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from burnish.core.messages import shown
from burnish.core.method import Method, Phase
from burnish.core.step import Settings, Step
from burnish.core.types import Clock, Group
from burnish.evals.evaluate import Interval, Shown, can_evaluate, evaluate, interval
from burnish.learn.learn import measure, plan_of
from burnish.models.build import Models
from burnish.score.judge import reply_text
from burnish.tasks.source import Source

ALSO = ("margin", "ties")  # metrics of pairs that are shown with their accuracy


@dataclass(frozen=True)
class Sampled:
    """Replies that were sampled beside the greedy one: k for each task, at this temperature."""

    temperature: float
    k: int
    accuracy: Interval
    passed: Interval  # pass@k
    majority: Interval  # majority@k


@dataclass(frozen=True)
class Outcome:
    """The main metric with its interval, and a few replies to show."""

    name: str
    value: Interval
    shown: tuple[Shown, ...] = ()
    also: dict[str, float] = field(default_factory=dict)  # measured with it: margin and ties of pairs
    sampled: Sampled | None = None

    @property
    def as_sampled(self) -> Interval:
        """The accuracy of the sampled replies, where there are some: what methods that sample raise. Else the value."""
        return self.sampled.accuracy if self.sampled is not None else self.value

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Outcome:
        several = stored.get("sampled")
        if several is not None:
            intervals = {name: Interval(**several[name]) for name in ("accuracy", "passed", "majority")}
            several = Sampled(**{**several, **intervals})
        return cls(
            stored["name"],
            Interval(**stored["value"]),
            tuple(Shown(**shown) for shown in stored["shown"]),
            stored.get("also", {}),
            several,
        )


def held_out(
    method: Method,
    models: Models,
    source: Source,
    settings: Settings,
    tasks: int,
    *,
    k: int = 0,
    temperature: float = 1.0,
    measure: str = "auto",
    done: bool = False,
) -> Outcome:
    """The outcome on `tasks` held-out tasks: of replies the accuracy of the greedy one, temperature 0.

    measure: loss is what the method's terms say of given replies, also where replies could be judged
    k, temperature: so many replies are sampled beside it; 0 of either: none
    done: after the run, when a method that trains nothing is judged by its selection
    """
    if measure == "auto" and method.generates and can_evaluate(source):
        if done and not any(plan_of(phase).trainees for phase in method.phases):
            return _selected(method, models, settings, tasks)
        greedy = evaluate(models, source, settings, tasks=tasks, temperature=0.0, who=method.product)
        sampled = None
        if k and temperature:
            several = evaluate(models, source, settings, tasks=tasks, k=k, temperature=temperature, who=method.product)
            sampled = Sampled(temperature, k, several.pass_at(1), several.pass_at(k), several.majority_at(k))
        return Outcome("accuracy", greedy.pass_at(1), greedy.shown[:8], sampled=sampled)
    notes = _term_notes(method, models, settings, tasks)
    for ending in ("accuracy", "nll", "loss"):
        for name, value in notes.items():
            if name.endswith(ending):
                beside = {part: f"{name.removesuffix(ending)}{part}" for part in ALSO if ending == "accuracy"}
                also = {part: notes[other] for part, other in beside.items() if other in notes}
                return Outcome(f"held-out {name}", Interval(value, value, value), also=also)
    return Outcome("held-out", Interval(0.0, 0.0, 0.0))


def _selected(method: Method, models: Models, settings: Settings, tasks: int) -> Outcome:
    """Mean accuracy (or reward) of the replies that the select stage keeps."""
    groups = _pass(method.phases[0], models, settings, tasks, ("score", "select"))
    score = "correct" if all("correct" in trace.scores for group in groups for trace in group.traces) else "reward"
    per_task = [
        sum(trace.scores[score] for trace in group.traces) / len(group.traces) for group in groups if group.traces
    ]
    chat = models[method.product].chat
    shown = tuple(
        Shown(_prompt_text(group), reply_text(group.traces[0], chat), bool(group.traces[0].scores[score] > 0.5))
        for group in groups[:8]
    )
    return Outcome("accuracy" if score == "correct" else "reward", interval(per_task), shown)


def _term_notes(method: Method, models: Models, settings: Settings, tasks: int) -> dict[str, float]:
    """The metrics that the terms report on held-out data."""
    notes: dict[str, float] = {}
    for phase in method.phases:
        if phase.draw.heldout is not None and plan_of(phase).terms:
            step = _step(models, settings, tasks)
            measure(_pass(phase, models, settings, tasks, ("score", "select", "credit")), plan_of(phase), step)
            notes |= step.notes.means()
    return notes


def _pass(phase: Phase, models: Models, settings: Settings, tasks: int, stages: tuple[str, ...]) -> list[Group]:
    """The groups of held-out tasks after rollout and these stages."""
    step = _step(models, settings, tasks)
    assert phase.draw.heldout is not None
    groups = phase.rollout.call(phase.draw.heldout(step), step)
    for stage in stages:
        groups = getattr(phase, stage).call(groups, step)
    return groups


def _step(models: Models, settings: Settings, tasks: int) -> Step:
    return Step(Clock(0, 1, 0), models, replace(settings, prompts=tasks, chunk=None))


def _prompt_text(group: Group) -> str:
    prompt = group.task.prompt
    return prompt if isinstance(prompt, str) else shown(prompt[-1])
