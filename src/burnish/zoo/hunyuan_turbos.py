"""Hunyuan-TurboS: Advancing Large Language Models through Mamba-Transformer Synergy and Adaptive Chain-of-Thought
(arXiv 2505.15431).
"""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.schedules import Schedule
from burnish.learn.maths.divergence import k3
from burnish.learn.norms import Norm, token_mean
from burnish.learn.term import Authors, Live, Term
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

HUNYUAN_TURBOS = Paper(
    "hunyuan-turbos",
    "2505.15431",
    "Hunyuan-TurboS: Advancing Large Language Models through Mamba-Transformer Synergy and Adaptive Chain-of-Thought",
)

Refills = Annotated[int, Option("How often a step fills up its batch after the filter.", at_least=0)]


def bounded_k3(logp: Tensor, ref: Tensor, most: float) -> Tensor:
    """k3 clipped to [0, most], per token; beyond, there is no gradient (Hunyuan-TurboS, arXiv 2505.15431)."""
    return k3(logp, ref).clamp(max=most)


def kl_bounded(
    *, coef: Schedule, most: float, norm: Norm = token_mean, on: Authors = "policy", name: str = "kl"
) -> Term:
    """k3 to the reference at the sampled tokens, clipped to [0, most]."""

    def loss(live: Live) -> Tensor:
        return bounded_k3(live.logp, live.ref, most)

    return Term(name=name, on=on, unit="token", loss=loss, live=("logp",), streams=("ref",), norm=norm, coef=coef)


@register(
    HUNYUAN_TURBOS,
    family="policy",
    summary="GRPO with a token mean, mixed groups alone, and a KL that is bounded at every token.",
    when="A KL penalty is wanted, and single tokens with huge log-ratios make it diverge.",
)
def turbos_grpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.01,
    most: Annotated[float, Option("The largest KL of one token.", above=0, unlimited=True)] = 10.0,
    refills: Refills = 3,
    reward_model: opt.RewardModel = None,
) -> Method:
    """The GRPO of Hunyuan-TurboS (section 3.5.2): token-level loss, bounded KL, dynamic sampling, temperature 1.

    A_i = (r_i - mean r) / std r in groups whose replies do not all score the same
    L = mean over tokens of [ -min(rho A, clip(rho, 1-eps, 1+eps) A) + beta min(k3, most) ]

    most = 10 is the paper's; n, eps and beta are not printed (beta is small for reasoning and larger for general
    tasks). Left out: the best-of-n loss on replies with a positive advantage, whose form is not given.
    """
    drawn, sampled = draw.prompts(task), rollout.sample(n)
    scored = score.scoring(task, reward_model)
    return method(
        draw=drawn,
        rollout=sampled,
        score=scored,
        select=select.refilled(select.mixed(), drawn, sampled, scored, refills),
        credit=chain(
            credit.group_relative(), credit.behaviour(), credit.ref(), credit.claim("pg", "policy", tag="mixed")
        ),
        learn=learn.Learn(
            learn.pg_clip(eps, norm=learn.token_mean, on=learn.CLAIMED), kl_bounded(coef=beta, most=most)
        ),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
    )
