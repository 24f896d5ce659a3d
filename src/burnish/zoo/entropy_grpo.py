"""Exploring Superior Function Calls via Reinforcement Learning (arXiv 2508.05118)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, papers, register


@register(
    papers.ENTROPY_GRPO,
    family="agents",
    summary="GRPO for function calls with a bonus for the entropy of thoughts.",
    when="A model thinks in <think> before it calls functions, and its thoughts become all alike.",
    example="burnish train entropy_grpo --task calls:1 --reward exact_calls --max-new-tokens 96",
)
def entropy_grpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    alpha: Annotated[float, Option("Weight of the entropy of a thought's tokens.", at_least=0)] = 0.4,
    kappa: Annotated[float, Option("The bonus is at most |A| / kappa.", above=0)] = 2.0,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.04,
    temperature: opt.Temperature = 1.0,
    updates: opt.Updates = 1,
) -> Method:
    """Entropy-enhanced GRPO for function calls (FunRL), reconstructed.

    A_t = A + min(alpha H_t, |A| / kappa) at the tokens between <think> and </think>, A elsewhere;  A = GRPO's advantage
    L = mean over replies of mean over tokens of [ -min(rho A_t, clip(rho, 1-eps, 1+eps) A_t) + beta k3 ]
    H_t: the policy's entropy at the token before the update, without gradient

    The paper's bonus could not be read. This one, with alpha = 0.4 and kappa = 2, is that of arXiv 2506.14758
    ("Reasoning with exploration"), restricted to thoughts. alpha = 0 is GRPO. The reward is the task's or --reward;
    `exact_calls` is the paper's kind, `toolrl` a graded one. Left out: data preparation by judges and AST checks.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.verify(task),
        credit=chain(
            credit.group_relative(),
            credit.streams("policy", "policy", entropy="entropy"),
            credit.entropy_of_thoughts(alpha, kappa),
            credit.behaviour(),
            credit.ref(),
        ),
        learn=learn.Learn(
            learn.pg_clip(eps, norm=learn.seq_mean), learn.kl_k3(coef=beta, norm=learn.seq_mean), updates=updates
        ),
        models=roles(ref=frozen("policy")),
    )
