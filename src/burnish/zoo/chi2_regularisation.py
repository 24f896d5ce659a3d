"""Correlated Proxies: A New Definition and Improved Mitigation for Reward Hacking (arXiv 2403.03185).

The batch's own divergence from the reference, as the scale of its penalty.
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part, supplies
from burnish.core.schedules import Schedule
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.learn.maths.chi2 import bounded_exp
from burnish.learn.norms import unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.rows import row_mean
from burnish.method import Method, Option, chain, method
from burnish.methods import opt, register
from burnish.methods.actor_critic import anchors, ppo_models
from burnish.papers import Paper

CHI2_REGULARISATION = Paper(
    "chi2-regularisation",
    "2403.03185",
    "Correlated Proxies: A New Definition and Improved Mitigation for Reward Hacking",
)


FLOOR = 1e-4  # the released code's least mean under the square root


def symmetric_chi2(log_ratio: Tensor) -> Tensor:
    """(e^L - 1) + (e^-L - 1), L = log pi(y|x) - log ref(y|x) of a whole reply (Laidlaw et al., arXiv 2403.03185).

    Shape [R]. Under samples of pi the first bracket estimates chi2(pi || ref); the second is a control variate, which
    makes it 0 and flat at pi = ref. Its gradient is (e^L - e^-L) grad L, as in the authors' code.
    """
    return bounded_exp(log_ratio) + bounded_exp(-log_ratio) - 2


def chi2_pull(*, coef: Schedule, on: Authors = "policy", name: str = "chi2") -> Term:
    """(e^L - 1) + (e^-L - 1) of each reply, L = sum_t log pi/ref, times stream "chi2_scale"."""

    def loss(live: Live) -> Tensor:
        log_ratio = live.per_row(live.logp - live.ref)
        return symmetric_chi2(log_ratio) * row_mean(live, live.chi2_scale).to(log_ratio.dtype)

    return Term(
        name=name,
        on=on,
        unit="sequence",
        loss=loss,
        live=("logp",),
        streams=("ref", "chi2_scale"),
        norm=unit_mean,
        coef=coef,
    )


@supplies("stream:chi2_scale")
def chi2_scale(author: str = "policy") -> Part:
    """1 / (2 sqrt(m)) on every token, m = max(1e-4, mean over replies of (e^L - 1) + (e^-L - 1)), L = sum_t log
    old/ref.

    d sqrt(m) = dm / (2 sqrt(m)): with this scale a mean over replies has the gradient of the square root of the mean,
    taken over the whole batch and held for the updates that are made of it.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        ratios = [(trace.streams["old"] - trace.streams["ref"])[trace.by(author)].double().sum() for trace in traces]
        mean = float(symmetric_chi2(torch.stack(ratios)).mean()) if ratios else 0.0
        for trace in traces:
            trace.streams["chi2_scale"] = torch.full((len(trace),), 1 / (2 * math.sqrt(max(FLOOR, mean))))
        if ratios:
            step.notes.add("chi2", mean)
        return groups

    return Part(
        name="chi2_scale",
        call=call,
        reads=frozenset({"stream:old", "stream:ref", f"tokens:{author}"}),
        writes=frozenset({"stream:chi2_scale"}),
    )


@register(
    CHI2_REGULARISATION,
    family="policy",
    summary="PPO held to its reference by the square root of a chi-squared divergence, against reward hacking.",
    when="Your reward is a proxy that the policy learns to exploit.",
)
def chi2_ppo(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    chi2: Annotated[float, Option("Weight of the penalty.", at_least=0)] = 0.0008,
    eps: opt.ClipRange = 0.4,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 4,
    minibatches: opt.Minibatches = 1,
    critic_lr: opt.CriticLR = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """PPO with sqrt-chi2 regularisation, in its form for language models.

    L = PPO's (GAE(1, lam), A whitened, no KL in the reward) + chi2 sqrt( mean over replies of (e^L - 1) + (e^-L - 1) )
    L = log pi(y|x) - log ref(y|x) of the whole reply; e^x goes on as its tangent beyond 10

    The second bracket is a control variate. This is the authors' code, whose gradient (e^L - e^-L) grad log pi is
    not all of the gradient of chi2. Departure: the mean under the root is that of the whole batch before its
    updates, held at 1e-4 or more; the code takes it anew over each minibatch, and has no gradient below 1e-4. chi2
    = 0.0008 is the authors' example.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        credit=chain(anchors(), chi2_scale(), credit.token_rewards(kl=None), credit.gae(lam=lam), credit.whiten()),
        learn=learn.Learn(
            learn.pg_clip(eps),
            learn.value_clip(value_eps, coef=value_coef),
            chi2_pull(coef=chi2),
            updates=updates,
            minibatches=minibatches,
        ),
        models=ppo_models(critic_lr, reward_model),
    )
