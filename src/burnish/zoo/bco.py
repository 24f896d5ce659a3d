"""Binary Classifier Optimization for LLM Alignment (arXiv 2404.04656).

Density ratios of prompts: which prompts have good replies rather than bad ones (BCO, arXiv 2404.04656).
"""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from burnish import credit, draw, learn
from burnish.core import randomness
from burnish.core.parts import Part, chain, supplies
from burnish.core.schedules import Schedule
from burnish.core.state import State
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.credit.preference import fill, reply_sum
from burnish.forward.module import input_embeddings
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import unpaired_term
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.methods.preference_unpaired import labelled_replies
from burnish.models.model import Model
from burnish.papers import Paper

BCO = Paper("bco", "2404.04656", "Binary Classifier Optimization for LLM Alignment")

METRICS = (("density", "Credit", "mean density ratio of the prompts of desirable and undesirable replies"),)


WIDTH = 16  # numbers that a prompt is described by
LEAST, MOST = 0.5, 10.0  # of a weight
RIDGE = 1e-2


def bco_cross_entropy(logratio: Tensor, desirable: Tensor, delta: Tensor, weight: Tensor, beta: float) -> Tensor:
    """BCO (Jung et al., arXiv 2404.04656), per reply: a classifier whose logit is the implicit reward less its mean.

        desirable:    -log s(beta lr - delta)
        undesirable:  -weight log s(-(beta lr - delta))

    delta is half the sum of the mean rewards of both classes, a running mean without gradient; weight is the density
    ratio of the prompts, 1 where both classes have the same prompts.
    """
    logit = beta * logratio - delta
    return torch.where(desirable, -F.logsigmoid(logit), -weight * F.logsigmoid(-logit))


class Midpoint:
    """BCO's delta: the mean over all batches so far of half the sum of the class means."""

    def __init__(self, name: str = "delta") -> None:
        self.name, self.value, self.seen = name, 0.0, 0

    def saw(self, value: float) -> float:
        self.seen += 1
        self.value += (value - self.value) / self.seen
        return self.value

    def state_dict(self) -> State:
        return {"value": self.value, "seen": self.seen}

    def load_state_dict(self, state: State) -> None:
        self.value, self.seen = float(state["value"]), int(state["seen"])


@supplies("stream:delta")
def reward_midpoint(running: Midpoint, beta: float, *, author: str = "demo") -> Part:
    """BCO's delta, as stream "delta": the running mean of (mean reward of desirable + mean of undesirable replies) / 2.

    A reward is beta (log pi - log ref) with the policy's log-probs in stream "now".
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [t for group in sorted(groups, key=lambda g: g.task.key) for t in group.traces]
        rewards: dict[bool, list[float]] = {True: [], False: []}
        for trace in traces:
            reward = beta * (reply_sum(trace, "now", author) - reply_sum(trace, "ref", author))
            rewards[float(trace.streams["label"][0]) > 0].append(reward)
        means = [sum(some) / len(some) for some in rewards.values() if some]
        delta = running.saw(sum(means) / len(means)) if means else running.value
        step.notes.add("delta", delta)
        for trace in traces:
            fill(trace, "delta", delta)
        return groups

    return Part(
        name="reward_midpoint",
        call=call,
        reads=frozenset({"stream:now", "stream:ref", "stream:label", f"tokens:{author}"}),
        writes=frozenset({"stream:delta"}),
        state=(running,),
    )


def bco_term(beta: Schedule, *, on: Authors = "policy") -> Term:
    """BCO on labelled replies, the running mean in stream "delta" and the prompts' density ratio in "density"."""
    return unpaired_term(
        lambda all, beta: bco_cross_entropy(
            all.logratio, all["label"] > 0, all["delta"].to(all.logratio), all["density"].to(all.logratio), beta
        ),
        beta=beta,
        marks=("delta", "density"),
        on=on,
    )


class PromptMemory:
    """The features and classes of the last `capacity` labelled prompts."""

    def __init__(self, capacity: int, name: str = "prompts") -> None:
        self.name, self.capacity = name, capacity
        self.features: list[list[float]] = []
        self.good: list[bool] = []

    def add(self, features: list[float], good: bool) -> None:
        self.features = [*self.features, features][-self.capacity :]
        self.good = [*self.good, good][-self.capacity :]

    def state_dict(self) -> State:
        return {"features": self.features, "good": self.good}

    def load_state_dict(self, state: State) -> None:
        self.features = [list(map(float, one)) for one in state["features"]]
        self.good = [bool(one) for one in state["good"]]


def log_ratio_weights(features: Tensor, good: Tensor, rounds: int = 20) -> Tensor:
    """The weights [W + 1] of a logistic regression of good [n] bool on features [n, W].

    Newton's method, with a ridge.

    Both classes count the same in sum, so that s / (1 - s) estimates p(x | good) / p(x | bad). The last weight is the
    constant.
    """
    x = torch.cat([features, torch.ones(len(features), 1, dtype=features.dtype)], 1)
    share = torch.where(good, 0.5 / good.sum().clamp(min=1), 0.5 / (~good).sum().clamp(min=1)).to(x.dtype)
    weights = torch.zeros(x.shape[1], dtype=x.dtype)
    ridge = RIDGE * torch.eye(x.shape[1], dtype=x.dtype)
    for _ in range(rounds):
        chance = torch.sigmoid(x @ weights)
        slope = x.T @ (share * (chance - good.to(x.dtype))) + ridge @ weights
        curve = (x * (share * chance * (1 - chance))[:, None]).T @ x + ridge
        weights = weights - torch.linalg.solve(curve, slope)
    return weights


@supplies("stream:density")
def density_ratio(memory: PromptMemory, *, who: str = "ref") -> Part:
    """p(x | good) / p(x | bad) of each trace's prompt, between 0.5 and 10, as stream "density".

    A prompt is described by 16 fixed random projections of its mean token embedding under `who`. Classes are those of
    stream "label". With a memory of 0 prompts, or while one class is missing, every weight is 1.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in sorted(groups, key=lambda one: one.task.key) if memory.capacity else ():
            for trace in group.traces:
                features = _described(step.models[who], trace.turns[0].tokens)
                memory.add(features.tolist(), float(trace.streams["label"][0]) > 0)
        good = torch.tensor(memory.good, dtype=torch.bool)
        fitted = None
        if bool(good.any()) and not bool(good.all()):
            fitted = log_ratio_weights(torch.tensor(memory.features, dtype=torch.float64), good)
        for trace in (trace for group in groups for trace in group.traces):
            weight = 1.0
            if fitted is not None:
                features = _described(step.models[who], trace.turns[0].tokens)
                weight = float((features @ fitted[:-1] + fitted[-1]).exp().clamp(LEAST, MOST))
            step.notes.add("density", weight)
            fill(trace, "density", weight)
        return groups

    return Part(
        name=f"density_ratio({memory.capacity} prompts)",
        call=call,
        reads=frozenset({"stream:label", f"model:{who}.logp"}),
        writes=frozenset({"stream:density"}),
        state=(memory,),
    )


@torch.no_grad()
def _described(model: Model, tokens: Tensor) -> Tensor:
    """[16] in fp64, each of about unit size."""
    table = input_embeddings(model.module).weight
    mean = table[tokens.to(table.device)].double().mean(0).cpu()
    draws = torch.from_numpy(randomness.generator("density", len(mean)).standard_normal((len(mean), WIDTH)))
    projected: Tensor = (mean / mean.norm().clamp(min=1e-12)) @ draws
    return projected


@register(
    BCO,
    family="preference",
    summary="A classifier of good and bad replies whose logit is the implicit reward less its running mean.",
    when="As `kto`; also where good and bad replies have different prompts.",
)
def bco(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    remembered: Annotated[
        int, Option("Recent prompts that the density ratio is fitted on; 0 takes all weights as 1.", at_least=0)
    ] = 1024,
) -> Method:
    """BCO.

    r = beta [log pi(y|x) - log ref(y|x)];  delta = running mean of (mean r of good + mean r of bad replies) / 2, held
    L = -log s(r - delta) for good replies, -w log s(-(r - delta)) for bad ones,  mean over replies

    w = p(good | x) / p(bad | x), between 0.5 and 10, is the density ratio of the prompts by logistic regression on
    their mean token embedding; it is 1 where both classes have the same prompts. The paper embeds prompts by another
    model. beta = 0.1 is the usual one; the paper's pairs have 0.01.
    """
    return method(
        **labelled_replies(task),
        credit=chain(
            credit.cached_ref(task),
            credit.streams("policy", logp="now"),
            credit.label(),
            reward_midpoint(Midpoint(), beta),
            density_ratio(PromptMemory(remembered)),
        ),
        learn=learn.Learn(bco_term(beta, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )
