"""How good the product of a run is on tasks it never trained on.

A policy is judged by the replies it gives. A method that trains nothing is judged by the replies it chooses. A product
that gives no replies (a reward model), or whose task has no verifier, is judged by its own terms on held-out data.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from burnish.cast.stage import Cast
from burnish.learn.learn import measure
from burnish.method import Method, Phase
from burnish.nouns import Clock, Group
from burnish.run.evaluate import Evaluation, Interval, Shown, can_evaluate, evaluate, interval
from burnish.score.verify import reply_text
from burnish.step import Settings, Step
from burnish.tasks.source import Source


@dataclass(frozen=True)
class Outcome:
    """A headline with its interval, and a few answers to read."""

    name: str
    value: Interval
    shown: tuple[Shown, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Outcome:
        return cls(stored["name"], Interval(**stored["value"]), tuple(Shown(**shown) for shown in stored["shown"]))


def held_out(
    method: Method, cast: Cast, source: Source, settings: Settings, tasks: int, *, done: bool = False
) -> Outcome:
    """The outcome on `tasks` held-out tasks; `done` asks what the method itself would answer, once it has run."""
    if method.product == "policy" and can_evaluate(source):
        if done and not any(phase.learn.terms for phase in method.phases):
            return _chosen(method.phases[0], cast, settings, tasks)
        found = evaluate(cast, source, settings, tasks=tasks)
        return Outcome("accuracy", found.pass_at(1), _look(found))
    notes = _term_notes(method, cast, settings, tasks)
    for ending in ("accuracy", "nll", "loss"):
        for name, value in notes.items():
            if name.endswith(ending):
                return Outcome(f"held-out {name}", Interval(value, value, value))
    return Outcome("held-out", Interval(0.0, 0.0, 0.0))


def held_out_once(method: Method, cast: Cast, source: Source, settings: Settings, tasks: int) -> dict[str, float]:
    """The same as one number for the log of a step."""
    found = held_out(method, cast, source, settings, tasks)
    return {"heldout/" + found.name.removeprefix("held-out "): found.value.mean}


def _chosen(phase: Phase, cast: Cast, settings: Settings, tasks: int) -> Outcome:
    """What is left after selection, judged."""
    groups = _walk(phase, cast, settings, tasks, ("score", "select"))
    score = "correct" if all("correct" in trace.scores for group in groups for trace in group.traces) else "reward"
    per_task = [
        sum(trace.scores[score] for trace in group.traces) / len(group.traces) for group in groups if group.traces
    ]
    chat = cast["policy"].chat
    shown = tuple(
        Shown(_asked(group), reply_text(group.traces[0], chat), bool(group.traces[0].scores[score] > 0.5))
        for group in groups[:8]
    )
    return Outcome("accuracy" if score == "correct" else "reward", interval(per_task), shown)


def _term_notes(method: Method, cast: Cast, settings: Settings, tasks: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for phase in method.phases:
        if phase.draw.heldout is not None and phase.learn.terms:
            step = _step(cast, settings, tasks)
            measure(_walk(phase, cast, settings, tasks, ("score", "select", "credit")), phase.learn, step)
            found |= step.notes.means()
    return found


def _walk(phase: Phase, cast: Cast, settings: Settings, tasks: int, rooms: tuple[str, ...]) -> list[Group]:
    step = _step(cast, settings, tasks)
    assert phase.draw.heldout is not None
    groups = phase.rollout.call(phase.draw.heldout(step), step)
    for room in rooms:
        groups = getattr(phase, room).call(groups, step)
    return groups


def _step(cast: Cast, settings: Settings, tasks: int) -> Step:
    return Step(Clock(0, 1, 0), cast, replace(settings, prompts=tasks, chunk=None))


def _look(found: Evaluation) -> tuple[Shown, ...]:
    return found.shown[:8]


def _asked(group: Group) -> str:
    prompt = group.task.prompt
    return prompt if isinstance(prompt, str) else prompt[-1]["content"]
