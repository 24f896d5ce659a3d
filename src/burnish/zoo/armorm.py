"""Interpretable Preferences via Multi-Objective Reward Modeling and Mixture-of-Experts (arXiv 2406.12845)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, select
from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.credit.reward import ratings_of
from burnish.learn.maths.preference import bradley_terry
from burnish.learn.reward_head import all_but_head, head_of, head_rows
from burnish.learn.term import Live, Term
from burnish.learn.terms.reward import note_order, row_scores, score_pair_term
from burnish.method import Method, Option, Task, chain, method, roles, trained
from burnish.methods import papers, register
from burnish.methods.compositions import Attributes, names_of
from burnish.score.debias import REPLIES, training_tasks
from burnish.score.heads import answered, end_outputs
from burnish.tasks.source import Source

METRICS = (("verbosity_share", "Credit", "mean share of the verbosity score that was taken off the other attributes"),)

LONG = 256  # tokens of a reply whose rating "length" is 1


def ridge(features: Tensor, targets: Tensor, alpha: float) -> Tensor:
    """argmin_w |X w - y|^2 + alpha |w|^2 without intercept, by a solve. [n, H], [n] -> [H]."""
    gram = features.T @ features + alpha * torch.eye(features.shape[1], dtype=features.dtype, device=features.device)
    solution: Tensor = torch.linalg.solve(gram, features.T @ targets)
    return solution


@supplies("stream:at_prompt")
def at_prompt() -> Part:
    """Stream "at_prompt": 1 on the tokens of the prompt, 0 on those of the reply."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.streams["at_prompt"] = trace.by("task").float()

    return per_trace(write, name="at_prompt", reads=frozenset({"tokens:task"}), writes=frozenset({"stream:at_prompt"}))


def spearman(x: Tensor, y: Tensor) -> float:
    """Spearman's rank correlation; equal values share their mean rank. 0 where one of the two is constant."""
    ranks = [_ranks(values) for values in (x, y)]
    a, b = (rank - rank.mean() for rank in ranks)
    scale = float(a.norm() * b.norm())
    return float(a @ b) / scale if scale else 0.0


def _ranks(x: Tensor) -> Tensor:
    values = x.double()
    below = (values[None] < values[:, None]).sum(-1)
    same = (values[None] == values[:, None]).sum(-1)
    return below + (same - 1) / 2


GRID = (0.0, 0.01, 0.025, 0.05, 0.075, 0.1, 0.125, 0.15, *(round(0.2 + 0.05 * i, 2) for i in range(16)))


def verbosity_shares(scores: Tensor, verbosity: Tensor, largest: float = 0.03) -> Tensor:
    """ArmoRM's lambda_i (arXiv 2406.12845): how much of the verbosity score is taken off each attribute. [k].

    The smallest of a grid for which Spearman's correlation of r_i - lambda_i verbosity with verbosity is at most
    `largest`; the last of the grid where none is. scores [n, k], verbosity [n].
    """
    found = []
    for column in scores.T:
        fitting = (share for share in GRID if spearman(column - share * verbosity, verbosity) <= largest)
        found.append(next(fitting, GRID[-1]))
    return torch.tensor(found, dtype=scores.dtype)


PENALTIES = tuple(10.0**power for power in range(-4, 5))


@dataclass(frozen=True)
class Rated:
    """The replies of the first `count` training tasks of a source, and how to read their ratings of k attributes."""

    source: Source
    count: int
    ratings: Callable[[Task, str, int], list[float]]  # (task, column of the reply, its tokens) -> k numbers or NaN

    def read(self, step: Step, model: str) -> tuple[list[Trace], Tensor]:
        """The traces and their ratings [n, k]."""
        reader, traces, rated = step.models[model], [], []
        for task in training_tasks(self.source, self.count):
            for column in REPLIES:
                if task.given.get(column) is None:
                    continue
                trace = answered(task, str(task.given[column]), reader.chat, reader.context)
                traces.append(trace)
                rated.append(self.ratings(task, column, len(trace.turns[-1])))
        return traces, torch.tensor(rated, dtype=torch.float64)


def fitted(features: Tensor, rated: Tensor) -> Tensor:
    """[k, H]: for each attribute a ridge regression without intercept on the replies that are rated for it.

    The penalty is the one of a grid with the least squared error on every fifth of these replies, which is then used on
    all of them. An attribute without ratings gets zeros.
    """
    rows = []
    for column in rated.T:
        known = ~column.isnan()
        x, y = features[known], column[known]
        if not len(y):
            rows.append(features.new_zeros(features.shape[1]))
            continue
        held = torch.arange(len(y)) % 5 == 4
        errors = {
            alpha: float((x[held] @ ridge(x[~held], y[~held], alpha) - y[held]).square().sum()) for alpha in PENALTIES
        }
        rows.append(ridge(x, y, min(PENALTIES, key=lambda alpha: errors[alpha])))
    return torch.stack(rows)


def without_verbosity(attributes: Tensor, features: Tensor, verbosity: int) -> tuple[Tensor, Tensor]:
    """Attribute vectors [k, H] with r'_i = r_i - lambda_i r_verbosity, and lambda [k] (`verbosity_shares`).

    The verbosity attribute itself becomes 0. features [n, H]: of the replies on which lambda is found.
    """
    scores = features @ attributes.T
    shares = verbosity_shares(scores, scores[:, verbosity])
    shares[verbosity] = 1.0
    return attributes - shares[:, None] * attributes[verbosity], shares


def attributes_at_start(
    rated: Rated, verbosity: int | None, *, model: str = "rm"
) -> Callable[[list[Group], Step], Tensor | None]:
    """A fold for `head_rows`: in the first step of a run, the head with fitted and debiased attributes; later None."""

    def fold(batch: list[Group], step: Step) -> Tensor | None:
        if step.clock.step or step.clock.tick:
            return None
        traces, ratings = rated.read(step, model)
        features = end_outputs(traces, step, model, "state")
        attributes = fitted(features, ratings)
        if verbosity is not None:
            attributes, shares = without_verbosity(attributes, features, verbosity)
            step.notes.add("verbosity_share", float(shares.sum() - 1), max(1, len(shares) - 1))
        weight = head_of(step.models[model]).detach().clone()
        weight[: len(attributes)] = attributes.to(weight)
        return weight

    return fold


def gated_pairs(
    attributes: int, temperature: float, *, at_prompt: str = "at_prompt", trainee: str = "rm", name: str = "gate"
) -> Term:
    """ArmoRM's second stage: Bradley-Terry on sum_i softmax(g / temperature)_i r_i; only the gate gets a gradient.

    The term claims two tokens a trace: the end of the prompt, where stream `at_prompt` is 1 and the outputs after the
    attributes are the gate's logits g, and the end of the reply, where the first outputs are the attributes r.
    """

    def loss(live: Live) -> Tensor:
        here = live.streams[at_prompt]
        rewards = row_scores(live, 1 - here)[:, :attributes].detach()
        gate = torch.softmax(row_scores(live, here)[:, attributes:] / temperature, -1)
        scores = (gate * rewards).sum(-1)
        chosen, rejected = scores[live.pairs[:, 0]], scores[live.pairs[:, 1]]
        note_order(live, chosen, rejected)
        entropy = -(gate * gate.clamp(min=1e-30).log()).sum(-1)
        live.note("gate_entropy", entropy[live.pairs[:, 0]])
        return bradley_terry(chosen, rejected)

    return score_pair_term(loss, (at_prompt,), trainee, (), name)


@register(
    papers.ARMORM,
    family="reward",
    summary="Rated attributes, verbosity taken out of them, and a gate by the prompt that weighs them.",
    when="What matters depends on the prompt, and longer replies are rated higher for their length.",
    trial={"rows": 5},
)
def armorm(
    task: draw.Source,
    *,
    attributes: Attributes = "quality,length",
    verbosity: Annotated[str, Option("The attribute to take out of the others; none where it is empty.")] = "length",
    temperature: Annotated[float, Option("Temperature of the gate's softmax.", above=0)] = 10.0,
    rows: Annotated[int, Option("Training rows that the attributes are fitted on.", at_least=5)] = 512,
) -> Method:
    """ArmoRM: absolute-rating multi-objective reward model with a mixture-of-experts gate, on a frozen backbone.

    at the start:  r_i(x, y) = w_i . h(x, y), w_i a ridge regression on the replies that are rated for attribute i, its
                   penalty by validation; r'_i = r_i - lambda_i r_verbosity, lambda_i the least of a grid with
                   Spearman's correlation of r'_i and r_verbosity at most 0.03; its last, 0.95, where none has
    then:          L = -log s( R(x, y_w) - R(x, y_l) ),  R = sum_i softmax(g(x) / temperature)_i r'_i, only g moves

    h is the last hidden state; start from a reward model (--model DIR), as the paper does. g is read at the last token
    of the prompt and never sees the reply. The product has 2k labels, k attributes and k gates: score with
    `armorm(DIR)`. Departures: the gate is linear, not an MLP, and has no learned scale. A constant gate is a fixed
    weighted sum.
    """
    names = names_of(attributes, task)
    k = len(names)

    def rating(task: Task, column: str, tokens: int) -> list[float]:
        return ratings_of(task.given, names, frozenset({column}), tokens / LONG)

    fold = attributes_at_start(Rated(task, rows, rating), names.index(verbosity) if verbosity in names else None)
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected", reader="rm"),
        select=select.given_pairs(),
        credit=chain(
            credit.claim("gate", "task", positions="last"), credit.claim("gate", "demo", positions="end"), at_prompt()
        ),
        learn=learn.Learn(gated_pairs(k, temperature), rest=all_but_head, move=head_rows(slice(k, 2 * k), fold)),
        models=roles("rm", rm=trained(outputs=2 * k)),
        product="rm",
    )
