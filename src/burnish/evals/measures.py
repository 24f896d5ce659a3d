"""What can be measured on held-out rows without judging replies: the likelihood of demonstrations, and preferences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from burnish.core.step import Settings
from burnish.core.types import Task, Trace
from burnish.evals.evaluate import Interval, held_out_tasks, interval, ratio, share
from burnish.models.build import Models
from burnish.rollout.demonstrated import cut_pieces, demonstration, demonstration_trace
from burnish.rollout.given import given_trace
from burnish.score.model import only_score
from burnish.score.reading import end_scores
from burnish.tasks.source import Source


@dataclass(frozen=True)
class Likelihood:
    """Of each held-out demonstration: the sum of -log pi over its trained tokens, and how many these are.

    good: whether each reply is labelled good (the data of kto); empty where the rows have no such labels
    """

    nll: tuple[float, ...]
    tokens: tuple[int, ...]
    good: tuple[bool, ...] = ()

    def labelled(self, good: bool) -> Likelihood | None:
        """That of the replies with this label; None where there are none."""
        kept = [i for i, label in enumerate(self.good) if label is good]
        return Likelihood(tuple(self.nll[i] for i in kept), tuple(self.tokens[i] for i in kept)) if kept else None

    def per_token(self) -> Interval:
        """The mean of -log pi over all tokens, with its 95% bootstrap interval over demonstrations."""
        return ratio(list(zip(self.nll, self.tokens, strict=True)))

    def perplexity(self) -> Interval:
        """exp of the mean of -log pi over all tokens."""
        nll = self.per_token()
        return Interval(*(math.exp(min(700.0, x)) for x in (nll.mean, nll.low, nll.high)))


@dataclass(frozen=True)
class Preference:
    """Of each held-out pair: how much better the chosen reply is than the rejected one.

    margins     differences of log pi, of log pi / ref where there is a reference, or of a reward model's scores
    per_token   the same, each reply's divided by its tokens; empty for scores
    """

    margins: tuple[float, ...]
    per_token: tuple[float, ...] = ()

    def accuracy(self) -> Interval:
        """The share of pairs in the right order; a tie is one half right."""
        return share([_right(margin) for margin in self.margins])

    def accuracy_per_token(self) -> Interval:
        return share([_right(margin) for margin in self.per_token])

    def ties(self) -> float:
        return sum(margin == 0 for margin in self.margins) / len(self.margins)

    def margin(self) -> Interval:
        return interval(list(self.margins))


def _right(margin: float) -> float:
    return 1.0 if margin > 0 else 0.5 if margin == 0 else 0.0


def likelihood(models: Models, source: Source, settings: Settings, tasks: int) -> Likelihood:
    """The likelihood of the first `tasks` held-out demonstrations under the policy."""
    chat, limit = models["policy"].chat, _limit(models["policy"].context, settings)
    traces: list[Trace] = []
    owner: list[int] = []
    rows = held_out_tasks(source, tasks)
    for number, task in enumerate(rows):
        for pieces in demonstration(task, chat, settings.train_on):
            traces.append(demonstration_trace(cut_pieces(pieces, limit), "demo", 0))
            owner.append(number)
    count = owner[-1] + 1
    sums, tokens = [0.0] * count, [0] * count
    for number, trace, logp in zip(owner, traces, _logp(models, "policy", traces, settings), strict=True):
        mask = trace.by("demo")
        sums[number] -= float(logp[mask].double().sum())
        tokens[number] += int(mask.sum())
    labels = [task.given.get("label") for task in rows[:count]]
    good = tuple(label for label in labels if isinstance(label, bool))
    return Likelihood(tuple(sums), tuple(tokens), good if len(good) == count else ())


def preference(
    models: Models, source: Source, settings: Settings, tasks: int, *, reader: str = "policy", reference: bool = False
) -> Preference:
    """The order in which a model puts the first `tasks` held-out pairs: `rm` by its scores, any other by its log-probs.

    reference: relative to the model `ref`
    """
    model = models[reader]
    limit, cut = _limit(model.context, settings), settings.on_long == "truncate"
    pairs = [
        [
            given_trace(task, column, "demo", model.chat, limit, i, cut)
            for i, column in enumerate(("chosen", "rejected"))
        ]
        for task in map(as_pair, held_out_tasks(source, tasks))
    ]
    traces = [trace for pair in pairs for trace in pair]
    if reader == "rm":
        scores = [only_score(one, reader) for one in end_scores(traces, model, settings.token_budget)]
        return Preference(tuple(better - worse for better, worse in _couples(scores)))
    logp = _logp(models, reader, traces, settings)
    other = _logp(models, "ref", traces, settings) if reference else [torch.zeros_like(one) for one in logp]
    sums = [
        float((mine[mask].double() - theirs[mask].double()).sum())
        for mine, theirs, mask in zip(logp, other, (trace.by("demo") for trace in traces), strict=True)
    ]
    means = [total / int(trace.by("demo").sum()) for total, trace in zip(sums, traces, strict=True)]
    return Preference(*(tuple(better - worse for better, worse in _couples(x)) for x in (sums, means)))


def as_pair(task: Task) -> Task:
    """A task with a preferred and a dispreferred reply; its own "demo" and "mistake" are such a pair."""
    if "chosen" in task.given:
        return task
    given = {**task.given, "chosen": task.given["demo"], "rejected": task.given["mistake"]}
    return Task("pair", task.prompt, given, task.key)


def _couples(values: Sequence[float]) -> list[tuple[float, float]]:
    return list(zip(values[::2], values[1::2], strict=True))


def _limit(context: int, settings: Settings) -> int:
    return min(context, settings.max_length or context)


def _logp(models: Models, who: str, traces: list[Trace], settings: Settings) -> list[torch.Tensor]:
    """[T] of each trace: the log-prob of every token after its first turn."""
    masks = []
    for trace in traces:
        mask = torch.ones(len(trace), dtype=torch.bool)
        mask[: len(trace.turns[0])] = False
        masks.append(mask)
    return [one["logp"] for one in models[who].streams(traces, masks, {"logp"}, settings.token_budget)]
