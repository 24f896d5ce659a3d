"""Numbers that the training of reward models reads: margins by grade, ratings, bootstrap samples, clusters of users."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F

from burnish.core import randomness
from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.credit.preference import fill
from burnish.learn.maths.axioms import KINDS, kind_among
from burnish.score.heads import end_outputs
from burnish.score.lengths import reply_length

GRADES = {
    "significantly better": 1.0,
    "better": 2 / 3,
    "slightly better": 1 / 3,
    "negligibly better": 0.0,
    "unsure": 0.0,
}
GOOD = ("chosen", "demo")  # tags of replies that are right by the data


def grade_of(value: Any, column: str) -> float:
    """The number of a grade: a number, or one of Llama 2's words (arXiv 2307.09288, the set 1, 2/3, 1/3, 0)."""
    if isinstance(value, str) and value.strip().lower() in GRADES:
        return GRADES[value.strip().lower()]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"column {column!r} has the grade {value!r}; grades are numbers or {', '.join(GRADES)}")
    return float(value)


@supplies("stream:margin")
def graded_margin(column: str, offset: float = 0.0) -> Part:
    """Stream "margin" = offset + the grade of the preference in a column of the data."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        fill(trace, "margin", offset + grade_of(group.task.given[column], column))

    return per_trace(
        write,
        name=f"graded_margin({column})",
        reads=frozenset({f"given:{column}"}),
        writes=frozenset({"stream:margin"}),
    )


@supplies("stream:ratings")
def ratings(names: tuple[str, ...], *, author: str = "demo") -> Part:
    """Stream "ratings" [T, k]: what the data says of each attribute of a reply; NaN where it says nothing.

    The rating of a reply is the column NAME, or chosen_NAME and rejected_NAME of a pair. Without such a column two
    attributes are known: "quality" is 1 for a chosen reply or a demonstration and 0 for the other, and "length" is the
    reply's tokens over the longest reply of the run.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        length = reply_length(trace, author) / step.settings.max_new_tokens
        found = ratings_of(group.task.given, names, trace.tags, length)
        trace.streams["ratings"] = torch.tensor(found).expand(len(trace), len(names)).clone()

    return per_trace(
        write,
        name=f"ratings({', '.join(names)})",
        reads=frozenset({f"tokens:{author}"}),
        writes=frozenset({"stream:ratings"}),
    )


def ratings_of(given: Mapping[str, Any], names: tuple[str, ...], tags: frozenset[str], length: float) -> list[float]:
    """The ratings of a reply with these tags; length: what counts as its rating "length" without a column."""
    known = {"quality": float(bool(tags & set(GOOD))), "length": length}
    return [rating_of(given, name, tags, known) for name in names]


def rating_of(given: Mapping[str, Any], name: str, tags: frozenset[str], known: Mapping[str, float]) -> float:
    """One rating of a reply; NaN where there is none."""
    columns = [*(f"{tag}_{name}" for tag in sorted(tags)), name]
    value = next((given[column] for column in columns if given.get(column) is not None), None)
    return known.get(name, math.nan) if value is None else grade_of(value, name)


@supplies("stream:bags")
def bags(heads: int, *, stream: str = "bags") -> Part:
    """Stream "bags" [T, k]: how often each head's bootstrap sample holds the task, Poisson with mean 1.

    The number depends on the task and the head alone, so that it is the same in every epoch.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        drawn = [
            _poisson(randomness.rng("bag", step.clock.seed, group.task.key, head).random()) for head in range(heads)
        ]
        trace.streams[stream] = torch.tensor(drawn, dtype=torch.float32).expand(len(trace), heads).clone()

    return per_trace(
        write, name=f"bags({heads})", reads=frozenset({"tokens:task"}), writes=frozenset({f"stream:{stream}"})
    )


def _poisson(u: float) -> float:
    """The number with that quantile of a Poisson distribution with mean 1."""
    number, chance, below = 0, math.exp(-1), 0.0
    while number < 20 and u >= below + chance:
        below, number = below + chance, number + 1
        chance /= number
    return float(number)


class Clusters:
    """Which cluster each user belongs to: the one whose reward model explains the user's pairs best (MaxMin-RLHF).

    For each user the log-likelihood of every pair under every cluster's model, as last computed; the cluster is the
    argmax of their sums. A user who was never seen is put into cluster (number of the user) modulo clusters.
    """

    def __init__(self, clusters: int, name: str = "clusters") -> None:
        self.name, self.clusters = name, clusters
        self.likelihoods: dict[str, dict[str, list[float]]] = {}

    def saw(self, user: str, pair: str, loglik: list[float]) -> None:
        self.likelihoods.setdefault(user, {})[pair] = loglik

    def first(self, user: str) -> int:
        """Where a user begins."""
        order = list(self.likelihoods)
        return (order.index(user) if user in self.likelihoods else len(order)) % self.clusters

    def of(self, user: str) -> int:
        """The user's cluster now; ties go to the first."""
        sums = [sum(column) for column in zip(*self.likelihoods[user].values(), strict=True)]
        return max(range(self.clusters), key=lambda u: (sums[u], -u))

    def state_dict(self) -> dict[str, Any]:
        return {"likelihoods": self.likelihoods}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.likelihoods = {user: dict(pairs) for user, pairs in state["likelihoods"].items()}


@supplies("stream:cluster")
def clustered(clusters: Clusters, column: str, warmup: int, *, model: str = "rm") -> Part:
    """The hard E-step over users: stream "cluster" of each pair, from the scores of all heads without gradient.

    column  who compared the replies; rows without it are one user's
    warmup  steps in which users stay where they begin, so that the heads have something to tell them apart by
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        scores = {id(trace): row for trace, row in zip(traces, end_outputs(traces, step, model), strict=True)}
        moved, users = 0, set()
        for group in sorted(groups, key=lambda group: group.task.key):
            user = str(group.task.given.get(column, ""))
            new = user not in clusters.likelihoods
            before = clusters.first(user) if new or step.clock.step < warmup else clusters.of(user)
            for a, b in group.pairs or ():
                loglik = F.logsigmoid(scores[id(group.traces[a])] - scores[id(group.traces[b])])
                clusters.saw(user, f"{group.task.key}/{a}/{b}", loglik.tolist())
            held = step.clock.step < warmup
            now = clusters.first(user) if held else clusters.of(user)
            moved += now != before
            users.add(user)
            for trace in group.traces:
                fill(trace, "cluster", now)
        step.notes.add("users_moved", moved, max(1, len(groups)))
        return groups

    return Part(
        name=f"clustered({column})",
        call=call,
        reads=frozenset({"pairs", f"model:{model}.score"}),
        writes=frozenset({"stream:cluster"}),
        state=(clusters,),
    )


@supplies("stream:at_prompt")
def at_prompt() -> Part:
    """Stream "at_prompt": 1 on the tokens of the prompt, 0 on those of the reply."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.streams["at_prompt"] = trace.by("task").float()

    return per_trace(write, name="at_prompt", reads=frozenset({"tokens:task"}), writes=frozenset({"stream:at_prompt"}))


@supplies("stream:noise")
def normal_noise(size: int, *, stream: str = "noise") -> Part:
    """Stream "noise" [T, size]: standard normal numbers, the same on all tokens of a group, new in every step."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            drawn = torch.tensor(normal(size, step, group.task.key), dtype=torch.float32)
            for trace in group.traces:
                trace.streams[stream] = drawn.expand(len(trace), size).clone()
        return groups

    return Part(
        name=f"normal_noise({size})",
        call=call,
        reads=frozenset({"tokens:task"}),
        writes=frozenset({f"stream:{stream}"}),
    )


def normal(size: int, step: Step, *what: object) -> list[float]:
    """Standard normal numbers that depend on the seed, the step and the purpose alone."""
    dice = randomness.rng(step.clock.seed, "normal", step.clock.step, step.clock.tick, *what)
    return [dice.gauss(0.0, 1.0) for _ in range(size)]


@supplies("stream:kind")
def axiom_kinds() -> Part:
    """Stream "kind": the number of the reply's kind among those that the axioms of preference compare."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        fill(trace, "kind", KINDS.index(kind_among(trace.tags)))

    return per_trace(write, name="axiom_kinds", reads=frozenset({"tag:axioms"}), writes=frozenset({"stream:kind"}))
