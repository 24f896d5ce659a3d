"""PRDP: Proximal Reward Difference Prediction for Large-Scale Reward Finetuning of Diffusion Models
(arXiv 2402.08714).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, score, select
from burnish.learn.terms.rows import row_sum
from burnish.method import Method, Option, chain, frozen, method, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper

PRDP = Paper(
    "prdp",
    "2402.08714",
    "PRDP: Proximal Reward Difference Prediction for Large-Scale Reward Finetuning of Diffusion Models",
)


def proximal_difference(beta: float, eps: float) -> learn.Term:
    """max of the squared error of predicted reward differences with and without the clip, for each pair."""

    def loss(live: learn.Live) -> Tensor:
        held = (live.logp - live.old).clamp(-eps, eps) + live.old - live.ref
        plain, clipped = row_sum(live, live.logp - live.ref), row_sum(live, held)
        reward = row_sum(live, live.reward)
        a, b = live.pairs[:, 0], live.pairs[:, 1]
        target = (reward[a] - reward[b]) / beta
        return torch.maximum((plain[a] - plain[b] - target) ** 2, (clipped[a] - clipped[b] - target) ** 2)

    return learn.Term(
        name="pair",
        unit="pair",
        loss=loss,
        live=("logp",),
        streams=("old", "ref", "reward"),
        norm=learn.unit_mean,
    )


@register(
    PRDP,
    family="policy",
    summary="A denoiser learns to predict the reward difference of two pictures by its log-ratios, held by a clip.",
    when="As `ddpo`, over many prompts, where policy gradients become unstable.",
    example="burnish train prdp --model tiny-flow --task paint:2",
    trial={"n": 3},
)
def prdp(
    task: draw.Source,
    *,
    n: opt.GroupSize = 4,
    beta: Annotated[float, Option("Strength of the KL to the pre-trained model.", above=0)] = 10.0,
    eps: Annotated[float, Option("How far a step's log-prob may move from the old one's.", above=0)] = 1e-4,
    updates: opt.Updates = 2,
) -> Method:
    """L = mean over pairs of max( (D - (r_a - r_b) / beta)^2, (D' - (r_a - r_b) / beta)^2 )
    D = sum_k log p/p_ref(a_k) - sum_k log p/p_ref(b_k)
    D' is D with log p_old + clip(log p - log p_old, -eps, eps) in place of log p

    At the optimum of reward minus beta KL, p ~ p_ref exp(r / beta), D is (r_a - r_b) / beta, and the loss 0. beta is
    that of the small setting; eps is not printed, and ours (R); the formula is second-hand (S). With eps infinite it is
    `rebel` anchored on the reference, rewards divided by beta.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        select=select.every_contrast(),
        credit=chain(credit.behaviour(), credit.ref(), credit.token_rewards()),
        learn=learn.Learn(proximal_difference(beta, eps), updates=updates),
        models=roles(policy=replace(trained(), sampler="ddim"), ref=replace(frozen("policy"), sampler="ddim")),
    )
