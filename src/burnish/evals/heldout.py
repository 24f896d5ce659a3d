"""Evaluation of a run's product on held-out tasks, by the measure that its method calls for (evals/better.py)."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from burnish.core.messages import shown
from burnish.core.method import Method, Phase
from burnish.core.step import Settings, Step
from burnish.core.types import Clock, Group
from burnish.evals import better
from burnish.evals.evaluate import Interval, Shown, can_evaluate, evaluate, interval, ratio, share, widened
from burnish.learn.learn import measure as measure_terms
from burnish.learn.learn import plan_of
from burnish.learn.units import OF_TASK
from burnish.models.build import Models
from burnish.models.chat import Chat
from burnish.rollout.episodes import rewarded_while_played
from burnish.score.judge import reply_text
from burnish.tasks.source import Source

ALSO = ("margin", "ties")  # metrics of pairs that are shown with their accuracy
CUT = "cut_off"  # in Outcome.also: the share of the replies that ran into --max-new-tokens


@dataclass(frozen=True)
class Sampled:
    """Replies that were sampled beside the greedy one: k for each task, at this temperature."""

    temperature: float
    k: int
    accuracy: Interval  # of graded rewards the share of those above one half
    passed: Interval  # pass@k
    majority: Interval  # majority@k


@dataclass(frozen=True)
class Outcome:
    """The measure with its interval, what was measured beside it, and a few replies to show.

    also     measured with it: margin and ties of pairs, perplexity, the share of replies that were cut
    sampled  accuracies of sampled replies, where replies were judged
    greedy   accuracy of the greedy replies, or their mean reward where `name` is one
    """

    name: str
    value: Interval
    shown: tuple[Shown, ...] = ()
    also: dict[str, float] = field(default_factory=dict)
    sampled: Sampled | None = None
    greedy: Interval | None = None

    @property
    def as_sampled(self) -> Interval:
        """The accuracy of the sampled replies, where there are some: what methods that sample raise. Else the value."""
        return self.sampled.accuracy if self.sampled is not None else self.value

    @property
    def measure(self) -> str:
        """The name of the measure as that of a metric: "sampled_accuracy", "reply/nll"."""
        return self.name.removeprefix("held-out ")

    def metrics(self) -> dict[str, float]:
        """What is recorded of it during a run. The first is the measure."""
        name = f"heldout/{self.measure}"
        metrics = {name: self.value.mean}
        if self.measure in better.GREEDY and self.greedy is not None:
            metrics[f"heldout/{better.GREEDY[self.measure]}"] = self.greedy.mean
        elif self.greedy is not None:
            metrics[f"heldout/{better.ACCURACY}"] = self.greedy.mean
        if self.sampled is not None and self.measure not in (better.REWARD, better.SUCCESS):
            metrics[f"heldout/{better.SAMPLED}"] = self.sampled.accuracy.mean
        place = name.rpartition("/")[0]
        return metrics | {f"heldout/{k}" if k == CUT else f"{place}/{k}": x for k, x in self.also.items()}

    def like(self, name: str) -> Outcome:
        """This outcome under another measure's name, where both say the same: an accuracy is a mean of rewards 0 and 1.

        Rewards that were all 0 or 1 before training turn out to be graded when the first one in between is seen.
        """
        same = {better.SAMPLED, better.SUCCESS}
        return replace(self, name=name) if name == better.REWARD and self.measure in same else self

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Outcome:
        several = stored.get("sampled")
        if several is not None:
            intervals = {name: Interval(**several[name]) for name in ("accuracy", "passed", "majority")}
            several = Sampled(**{**several, **intervals})
        greedy = stored.get("greedy")
        return cls(
            stored["name"],
            Interval(**stored["value"]),
            tuple(Shown(**shown) for shown in stored["shown"]),
            stored.get("also", {}),
            several,
            None if greedy is None else Interval(**greedy),
        )


@dataclass(frozen=True)
class Asked:
    """How held-out tasks are measured.

    k, temperature  so many replies are sampled beside the greedy one; 0 of either: none
    measure         --eval-measure: auto, or one of evals/better.py
    earlier         the name of the measure of the evaluation before; a graded reward stays one
    whole           also what is measured beside it and costs replies: the accuracy of a method that learns from given
                    ones
    done            after the run, when a method that trains nothing is judged by its selection
    """

    k: int = 0
    temperature: float = 1.0
    measure: str = "auto"
    earlier: str = ""
    whole: bool = True
    done: bool = False


def held_out(
    method: Method, models: Models, source: Source, settings: Settings, tasks: int, asked: Asked = Asked()
) -> Outcome:
    """The outcome on `tasks` held-out tasks."""
    kind = better.kind_of(method, source, asked.measure)
    if asked.done and not better.trains(method):
        with _unchanged(method):
            return _selected(method, models, source, settings, tasks, asked, kind)
    if kind == "judged":
        return _judged(method, models, source, settings, tasks, asked)
    with _unchanged(method):
        outcome = (
            _scored(method, models, settings, tasks) if kind == "scored" else _told(method, models, settings, tasks)
        )
    beside = asked.measure == "auto" and method.generates and can_evaluate(source)
    if not beside or not (asked.whole or kind == "scored"):
        return outcome
    replies = _judged(method, models, source, settings, tasks, replace(asked, measure="accuracy"))
    if kind == "scored":
        right = {better.SAMPLED: replies.sampled.accuracy.mean} if replies.sampled else {}
        assert replies.greedy is not None
        return replace(outcome, shown=replies.shown, also=outcome.also | right | {better.ACCURACY: replies.greedy.mean})
    return replace(
        outcome, greedy=replies.greedy, sampled=replies.sampled, shown=replies.shown, also=outcome.also | replies.also
    )


def _judged(method: Method, models: Models, source: Source, settings: Settings, tasks: int, asked: Asked) -> Outcome:
    """Replies judged by the task: the greedy one, and k sampled ones."""
    who = method.product
    greedy = evaluate(models, source, settings, tasks=tasks, temperature=0.0, who=who)
    several = None
    if asked.k and asked.temperature:
        several = evaluate(models, source, settings, tasks=tasks, k=asked.k, temperature=asked.temperature, who=who)
    graded = asked.earlier == better.REWARD or greedy.graded or (several is not None and several.graded)
    graded = (graded and asked.measure not in ("accuracy", "sampled")) or asked.measure == "reward"
    played = rewarded_while_played(source)
    first = several if several is not None and better.sampled_first(method, asked.measure) else greedy
    name = better.SAMPLED if first is several else better.ACCURACY
    name = better.REWARD if graded else better.SUCCESS if played else name
    sampled = None
    if several is not None:
        k = asked.k
        sampled = Sampled(asked.temperature, k, several.pass_at(1), several.pass_at(k), several.majority_at(k))
    return Outcome(
        name,
        first.reward() if graded else first.pass_at(1),
        greedy.shown[:8],
        {CUT: first.cut},
        sampled,
        greedy.reward() if graded else greedy.pass_at(1),
    )


def _scored(method: Method, models: Models, settings: Settings, tasks: int) -> Outcome:
    """The mean reward that the method's own score stage gives to the replies of its own rollout."""
    phase = next(phase for phase in method.phases if better.scores_held_out(phase))
    groups = _pass(phase, models, settings, tasks, ("score",))
    rewards = [[trace.scores["reward"] for trace in g.traces if "reward" in trace.scores] for g in groups]
    cut = [trace.note.get("stopped") == "length" for group in groups for trace in group.traces]
    value = interval([statistics.fmean(row) for row in rewards if row] or [math.nan])
    shown = _replies(groups, models[method.product].chat, "reward")
    return Outcome(better.REWARD, value, shown, {CUT: statistics.fmean(cut or [0])})


def _told(method: Method, models: Models, settings: Settings, tasks: int) -> Outcome:
    """What the method's terms say of held-out data."""
    notes, of_tasks = _term_notes(method, models, settings, tasks)
    for ending in better.OF_GIVEN:
        for name, value in notes.items():
            if name.endswith(ending):
                beside = {part: f"{name.removesuffix(ending)}{part}" for part in ALSO if ending == "accuracy"}
                also = {part: notes[other] for part, other in beside.items() if other in notes}
                if ending == "nll":
                    also["perplexity"] = math.exp(min(700.0, value))
                around = ratio(of_tasks[name]) if name in of_tasks else Interval(value, value, value)
                around = widened(around, len(of_tasks[name])) if ending == "accuracy" and name in of_tasks else around
                return Outcome(f"held-out {name}", replace(around, mean=value), also=also)
    return Outcome("held-out", Interval(0.0, 0.0, 0.0))


@contextmanager
def _unchanged(method: Method) -> Iterator[None]:
    """What an evaluation leaves in the stateful parts of a method (running means, checklists) is undone."""
    parts = {id(item): item for item in method.stateful().values()}
    before = {key: copy.deepcopy(item.state_dict()) for key, item in parts.items()}
    try:
        yield
    finally:
        for key, item in parts.items():
            item.load_state_dict(before[key])


def _selected(
    method: Method, models: Models, source: Source, settings: Settings, tasks: int, asked: Asked, kind: better.Kind
) -> Outcome:
    """The replies that the select stage keeps: the share of right ones, or their mean reward where it is graded."""
    groups = [g for g in _pass(method.phases[0], models, settings, tasks, ("score", "select")) if g.traces]
    traces = [trace for group in groups for trace in group.traces]
    graded = not better.learned(method, source) and any(t.scores["reward"] not in (0.0, 1.0) for t in traces)
    graded = graded or kind == "scored" or any("correct" not in trace.scores for trace in traces)
    score = "reward" if graded or asked.earlier == better.REWARD else "correct"
    per_task = [statistics.fmean(trace.scores[score] for trace in group.traces) for group in groups]
    name = better.ACCURACY if score == "correct" else better.REWARD
    value = share(per_task) if name == better.ACCURACY else interval(per_task)
    return Outcome(name, value, _replies(groups, models[method.product].chat, score))


def _replies(groups: list[Group], chat: Chat, score: str) -> tuple[Shown, ...]:
    """The first reply of each of the first groups, right where its score is above one half."""
    first = [(group, group.traces[0]) for group in groups[:8] if group.traces]
    return tuple(Shown(_prompt_text(g), reply_text(t, chat), t.scores.get(score, 0.0) > 0.5) for g, t in first)


def _term_notes(
    method: Method, models: Models, settings: Settings, tasks: int
) -> tuple[dict[str, float], dict[str, list[tuple[float, float]]]]:
    """The metrics that the terms report on held-out data; and of each metric the total and the size of each task."""
    notes: dict[str, float] = {}
    of_tasks: dict[str, dict[str, tuple[float, float]]] = {}
    for phase in method.phases:
        if phase.draw.heldout is not None and plan_of(phase).terms:
            step = _step(models, settings, tasks)
            groups = _pass(phase, models, settings, tasks, ("score", "select", "credit"))
            measure_terms(groups, plan_of(phase), step)
            for name, (total, size) in step.notes.sums().items():
                metric, apart, group = name.partition(OF_TASK)
                if not apart:
                    notes[metric] = total / size
                    of_tasks.pop(metric, None)
                    continue
                key, known = groups[int(group)].task.key, of_tasks.setdefault(metric, {})
                before = known.get(key, (0.0, 0.0))  # tasks with the same key are drawn together
                known[key] = before[0] + total, before[1] + size
    return notes, {name: list(tasks.values()) for name, tasks in of_tasks.items()}


def _pass(phase: Phase, models: Models, settings: Settings, tasks: int, stages: tuple[str, ...]) -> list[Group]:
    """The groups of held-out tasks after rollout and these stages."""
    step = _step(models, settings, tasks)
    assert phase.draw.heldout is not None
    groups = phase.rollout.call(phase.draw.heldout(step), step)
    for stage in stages:
        groups = getattr(phase, stage).call(groups, step)
    return groups


def _step(models: Models, settings: Settings, tasks: int) -> Step:
    return Step(Clock(0, 1, 0), models, replace(settings, prompts=tasks, chunk=None), measures=True)


def _prompt_text(group: Group) -> str:
    prompt = group.task.prompt
    return prompt if isinstance(prompt, str) else shown(prompt[-1])
