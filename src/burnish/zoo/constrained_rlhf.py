"""Confronting Reward Model Overoptimization with Constrained RLHF (arXiv 2310.04373)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from burnish import draw, learn, rollout, score
from burnish.core.parts import Part, supplies
from burnish.core.roles import trained
from burnish.core.schedules import Schedule
from burnish.core.scorer import named_reward
from burnish.core.state import State
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.credit.gae import advantages_and_returns
from burnish.learn import maths
from burnish.learn.maths.value import value_is_clipped
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.fit import head_term
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, register
from burnish.methods.actor_critic import anchors
from burnish.papers import Paper
from burnish.score.maths.multipliers import sigmoid

CONSTRAINED_RLHF = Paper(
    "constrained-rlhf", "2310.04373", "Confronting Reward Model Overoptimization with Constrained RLHF"
)


@dataclass(frozen=True)
class Squash:
    """How a raw number becomes a multiplier, and the slope of that."""

    of: Callable[[float], float]
    slope: Callable[[float], float]


# Constrained RLHF (arXiv 2310.04373): tanh for equality (a multiplier may be negative and push a reward down to its
# target), the sigmoid for inequality (at least). At raw 0 the one begins with 0, the other with 1/2.
EQUALITY = Squash(math.tanh, lambda x: 1 - math.tanh(x) ** 2)


INEQUALITY = Squash(sigmoid, lambda x: sigmoid(x) * (1 - sigmoid(x)))


class SquashedMultipliers:
    """mu_i = squash(raw_i), by gradient descent on sum_i mu_i (mean return_i - theta_i), SGD with momentum.

        g_i = squash'(raw_i) (mean return_i - theta_i);   v_i <- momentum v_i + g_i;   raw_i <- raw_i - lr v_i

    A reward above its threshold loses weight, one below gains. Sigmoid, raw 0, mean 0.5, theta 0.44, lr 0.1: the
    gradient is 0.06 / 4 = 0.015 and raw becomes -0.0015.
    """

    def __init__(self, thresholds: Mapping[str, float], squash: Squash, lr: float, momentum: float) -> None:
        self.name = "squashed_multipliers"
        self.thresholds, self.squash, self.lr, self.momentum = dict(thresholds), squash, lr, momentum
        self.raw = dict.fromkeys(thresholds, 0.0)
        self.velocity = dict.fromkeys(thresholds, 0.0)

    def value(self, name: str) -> float:
        return self.squash.of(self.raw[name])

    def heard(self, means: Mapping[str, float]) -> None:
        """Move each multiplier by the mean return of its reward."""
        for name, theta in self.thresholds.items():
            slope = self.squash.slope(self.raw[name]) * (means[name] - theta)
            self.velocity[name] = self.momentum * self.velocity[name] + slope
            self.raw[name] -= self.lr * self.velocity[name]

    def state_dict(self) -> State:
        return {"raw": dict(self.raw), "velocity": dict(self.velocity)}

    def load_state_dict(self, state: State) -> None:
        self.raw = {name: float(x) for name, x in state["raw"].items()}
        self.velocity = {name: float(x) for name, x in state["velocity"].items()}


def standardised(values: list[Tensor]) -> list[Tensor]:
    """(x - mean) / (std + 1e-8) over all values together."""
    flat = torch.cat(values)
    return [(x - flat.mean()) / (flat.std(unbiased=False) + 1e-8) for x in values]


@supplies("stream:adv", "stream:returns")
def mixed_advantages(multipliers: SquashedMultipliers, *, gamma: float = 1.0, lam: float = 0.95) -> Part:
    """A = (N - sum_i mu_i) A_KL + sum_i mu_i A_i, every A by GAE from its own value head and standardised before.

        reward i: r_i at the last token, head i;   KL: r_t = -(log pi_old - log ref)(t), head N

    Constrained RLHF (arXiv 2310.04373). Stream "value" is [T, N + 1] and so is "returns". The multipliers move after
    they are used, by the mean of each reward over the batch.
    """
    names = list(multipliers.thresholds)

    def streams_of(trace: Trace, mask: Tensor) -> Tensor:
        """[t, N + 1]: the token rewards of each head."""
        rewards = torch.zeros(int(mask.sum()), len(names) + 1)
        rewards[-1, :-1] = torch.tensor([named_reward(trace, name) for name in names])
        rewards[:, -1] = trace.streams["ref"][mask] - trace.streams["old"][mask]
        return rewards

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces if bool(trace.by("policy").any())]
        masks = [trace.by("policy") for trace in traces]
        if not traces:
            return groups
        found = []
        for trace, mask in zip(traces, masks, strict=True):
            rewards, values = streams_of(trace, mask), trace.streams["value"][mask]
            heads = [advantages_and_returns(r, v, gamma, lam) for r, v in zip(rewards.T, values.T, strict=True)]
            trace.streams["returns"] = torch.full((len(trace), len(heads)), float("nan"))
            trace.streams["returns"][mask] = torch.stack([returns for _, returns in heads], dim=1)
            found.append([adv for adv, _ in heads])
            step.notes.add("kl", -float(rewards[:, -1].sum()), int(mask.sum()))
        by_head = [standardised([heads[k] for heads in found]) for k in range(len(names) + 1)]
        weights = [multipliers.value(name) for name in names]
        weights.append(len(names) - sum(weights))
        for i, (trace, mask) in enumerate(zip(traces, masks, strict=True)):
            trace.streams["adv"] = torch.full((len(trace),), float("nan"))
            trace.streams["adv"][mask] = torch.stack([w * x[i] for w, x in zip(weights, by_head, strict=True)]).sum(0)
        _learn_multipliers(multipliers, traces, step)
        return groups

    return Part(
        name=f"mixed_advantages({', '.join(names)})",
        call=call,
        reads=frozenset({"score:reward", "tokens:policy", "stream:old", "stream:ref", "stream:value"}),
        writes=frozenset({"stream:adv", "stream:returns"}),
        state=(multipliers,),
    )


def _learn_multipliers(multipliers: SquashedMultipliers, traces: list[Trace], step: Step) -> None:
    for name in multipliers.thresholds:
        step.notes.add(f"multiplier/{name}", multipliers.value(name))
    names = multipliers.thresholds
    multipliers.heard({name: sum(named_reward(t, name) for t in traces) / len(traces) for name in names})


def value_heads_clip(
    eps: float, *, coef: Schedule = 1.0, trainee: str = "critic", on: Authors = "policy", name: str = "value"
) -> Term:
    """PPO's clipped value loss of a critic with several heads, summed over them; "value" and "returns" are [T, k]."""

    def loss(live: Live) -> torch.Tensor:
        value, old = live.outputs["value"], live.streams["value"]
        live.note("error", (value - live.returns).abs().mean(-1))
        live.note("estimate", value.mean(-1))
        live.note("clipped", value_is_clipped(value, old, live.returns, eps).mean(-1))
        return maths.clipped_squared_error(value, old, live.returns, eps).sum(-1)

    return head_term(loss, "value", "value", "returns", name=name, trainee=trainee, on=on, coef=coef)


SQUASHES = {"at_least": INEQUALITY, "equal": EQUALITY}


def read_thresholds(text: str) -> dict[str, float]:
    """ "math=0.9,brief=0.5" as a mapping; raises ValueError for what is none."""
    found: dict[str, float] = {}
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, value = piece.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise ValueError(
                f"thresholds: {piece!r} is no NAME=NUMBER; write the names of rewards: math=0.9,brief=0.5"
            ) from None
    if not found:
        raise ValueError("thresholds is empty; name at least one reward: math=0.9,brief=0.5")
    return found


@register(
    CONSTRAINED_RLHF,
    family="policy",
    summary="PPO that stays near the start and brings each reward to its threshold, not beyond.",
    when="Several reward models are over-optimised beyond a point that you know, or found by a sweep.",
    example="burnish train constrained_rlhf --reward 'math,my.py:brief' --thresholds math=0.9,brief=0.5",
    trial={"n": 2, "updates": 1, "thresholds": "correct=0.5"},
)
def constrained_rlhf(
    task: draw.Source,
    *,
    thresholds: Annotated[str, Option("The threshold of each reward by name: math=0.9,brief=0.5.")] = "correct=0.9",
    constraint: Annotated[
        Literal["at_least", "equal"], Option("Whether rewards must reach their thresholds or equal them.")
    ] = "at_least",
    multiplier_lr: Annotated[float, Option("Step size of the multipliers.", at_least=0)] = 0.1,
    momentum: Annotated[float, Option("Momentum of the multipliers.", at_least=0, below=1)] = 0.1,
    n: opt.Replies = 1,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    gamma: opt.Gamma = 1.0,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 4,
    critic_lr: opt.CriticLR = 1.0,
) -> Method:
    """Constrained RLHF (mu-PPO for at_least, xi-PPO for equal): minimise the KL subject to E[r_i] >= theta_i, or =.

    A = (N - sum_i mu_i) A_KL + sum_i mu_i A_i, every A by GAE from its own value head, standardised before mixing
    mu_i = sigmoid(raw_i) (at_least; starts at 1/2) or tanh(raw_i) (equal; starts at 0: pure KL, may become negative)
    raw_i by SGD with momentum on mu_i (mean r_i - theta_i): a reward above its threshold loses weight
    L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + value_coef mean over tokens of sum over heads of max((V - R)^2, (V_clip - R)^2) / 2

    The released code starts all raw_i at one draw of N(0, 0.01^2), where here they start at 0.
    Rewards are those of --reward by their names, and `correct`. multiplier_lr 0: weighted-sum RLHF with fixed weights.
    theta_i are proxy points beyond which the true score falls; find them by runs with one reward each and an
    evaluation that you trust (the paper also searches them within a run by Nelder-Mead, which is left out).
    """
    theta = read_thresholds(thresholds)
    multipliers = SquashedMultipliers(theta, SQUASHES[constraint], multiplier_lr, momentum)
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(anchors(), mixed_advantages(multipliers, gamma=gamma, lam=lam)),
        learn=learn.Learn(learn.pg_clip(eps), value_heads_clip(value_eps, coef=value_coef), updates=updates),
        models=roles(ref=frozen("policy"), critic=trained(outputs=len(theta) + 1, lr=critic_lr)),
    )
