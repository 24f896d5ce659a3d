"""Beyond the 80/20 Rule: High-Entropy Minority Tokens Drive Effective Reinforcement Learning for LLM Reasoning
(arXiv 2506.01939).
"""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

HIGH_ENTROPY_TOKENS = Paper(
    "high-entropy-tokens",
    "2506.01939",
    "Beyond the 80/20 Rule: High-Entropy Minority Tokens Drive Effective Reinforcement Learning for LLM Reasoning",
)


@register(
    HIGH_ENTROPY_TOKENS,
    family="policy",
    summary="DAPO on the fifth of the tokens where the policy is most undecided.",
    when="Large models, long replies: most tokens are filler and only the forks should learn.",
)
def high_entropy_tokens(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    top: Annotated[float, Option("Share of the tokens that is trained.", above=0, at_most=1)] = 0.2,
    eps_low: opt.ClipLow = 0.2,
    eps_high: opt.ClipHigh = 0.28,
    overlong: opt.Overlong = 0.2,
    minibatches: opt.Minibatches = 4,
) -> Method:
    """DAPO with the gradient of forking tokens alone.

    H_t = entropy of pi(. | before t);  the term claims the tokens with H_t among the largest `top` of the batch
    L = mean over the claimed tokens of -min(rho A, clip(rho, 1-eps_low, 1+eps_high) A);  the rest as in `dapo`

    Tokens that are not claimed leave the mean's size too. Departures: the share is pooled over the whole batch and
    the entropy is that of the policy before the batch's updates; the released code pools over a micro-batch, with
    the entropy of the moment, which would let batch splitting change the gradient. Groups that are not mixed are
    dropped and not refilled. The paper samples 16 replies to 512 prompts and makes 16 updates of them.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=chain(score.verify(task), score.punish_overlong(overlong)),
        select=select.mixed(),
        credit=chain(
            credit.group_relative(score="shaped"),
            credit.streams("policy", logp="old", entropy="entropy"),
            credit.claim("pg", "policy", tag="mixed", top=("entropy", top)),
        ),
        learn=learn.Learn(
            learn.pg_clip(eps_low, eps_high, norm=learn.token_mean, on=learn.CLAIMED), minibatches=minibatches
        ),
        models=roles(),
    )
