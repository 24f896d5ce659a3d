"""The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models (arXiv 2505.22617)."""

from __future__ import annotations

import math
from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

CLIP_COV = Paper(
    "clip-cov", "2505.22617", "The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models"
)


@register(
    CLIP_COV,
    family="policy",
    summary="A few tokens whose log-prob and advantage go together lose their gradient.",
    when="Entropy collapses early, and you want to leave out the few tokens that do it.",
)
def clip_cov(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 1.0,
    share: Annotated[float, Option("Share of the tokens that are drawn.", at_least=0, at_most=1)] = 2e-4,
    low: Annotated[float, Option("The band's lower end.")] = 1.0,
    high: Annotated[float, Option("The band's upper end.", unlimited=True)] = 5.0,
    minibatches: opt.Minibatches = 4,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Clip-Cov: entropy is kept by sparing the policy some of the updates that would make it surer.

    cov_t = (log pi_old(y_t) - mean)(A_t - mean), means over all tokens of the batch;  A_i = (r_i - mean r) / std r
    drawn: share x N tokens at random, one at least, from those with low <= cov <= high;  keep = 0 there, else 1
    L = mean over all tokens of -keep min(rho A, clip(rho, 1-eps, 1+eps) A);  mixed groups alone, no KL

    Not the tokens of largest covariance: a random draw inside a band. The ratio's own clip stands open, as in the
    released code. Departures: the covariance is taken once, before the batch's updates, where the code takes it
    again for each micro-batch of each update and draws only among tokens that are not clipped already. The paper
    makes 8 updates of a batch.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.verify(task),
        select=select.mixed(),
        credit=chain(
            credit.group_relative(),
            credit.behaviour(),
            credit.covariance(),
            credit.drop_from_band(low, high, share),
            credit.claim("pg", "policy", tag="mixed"),
        ),
        learn=learn.Learn(
            learn.pg_clip(eps, norm=learn.token_mean, weight="keep", on=learn.CLAIMED), minibatches=minibatches
        ),
        models=roles(),
    )


@register(
    CLIP_COV,
    family="policy",
    summary="The tokens whose log-prob and advantage go most together are held near the old policy.",
    when="As `clip_cov`, with a soft hold instead of a cut.",
)
def kl_cov(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    share: Annotated[float, Option("Share of the tokens that are penalised.", at_least=0, at_most=1)] = 2e-3,
    beta: Annotated[float, Option("Weight of the penalty.", at_least=0)] = 1.0,
    minibatches: opt.Minibatches = 4,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """KL-Cov: a penalty on the tokens that would lower the entropy most.

    cov_t as in `clip_cov`;  top = 1 for the share of the batch's tokens with the largest cov (one at least), else 0
    L = mean over all tokens of -rho A + beta top |log(pi/pi_old)|;  no clip, mixed groups alone, no KL to a reference

    The share is that of the paper's 7B runs (2e-4 at 32B). The covariance is taken once, before the batch's
    updates, where the released code takes it again for each micro-batch. The paper makes 8 updates of a batch.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.verify(task),
        select=select.mixed(),
        credit=chain(
            credit.group_relative(),
            credit.behaviour(),
            credit.covariance(),
            credit.top_share(share),
            credit.claim("pg", "policy", tag="mixed"),
            credit.claim("stay", "policy", tag="mixed"),
        ),
        learn=learn.Learn(
            learn.pg_clip(math.inf, norm=learn.token_mean, on=learn.CLAIMED),
            learn.stay("top", coef=beta, norm=learn.token_mean, on=learn.CLAIMED),
            minibatches=minibatches,
        ),
        models=roles(),
    )
