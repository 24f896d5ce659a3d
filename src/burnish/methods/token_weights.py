"""Group methods that do not treat all tokens of a reply alike: by their entropy, or by what they do to the entropy."""

from __future__ import annotations

import math
from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, papers, register


@register(
    papers.CLIP_COV,
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
    papers.CLIP_COV,
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


@register(
    papers.HIGH_ENTROPY_TOKENS,
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
    temperature: opt.Temperature = 1.0,
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
        rollout=rollout.sample(n, temperature=temperature),
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


@register(
    papers.DUAL_TOKEN_ARCHER,
    family="policy",
    summary="A wide clip and no KL for undecided tokens, a narrow clip and a KL for the rest.",
    when="Facts should keep still while reasoning moves: undecided tokens explore, sure ones are held.",
)
def dual_token_archer(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    quantile: Annotated[float, Option("Where, in a reply's entropies, reasoning begins.", at_least=0, at_most=1)] = 0.8,
    eps_reasoning: Annotated[float, Option("The clip range of reasoning tokens.", at_least=0, unlimited=True)] = 0.5,
    eps_knowledge: Annotated[float, Option("The clip range of the rest.", at_least=0, unlimited=True)] = 0.2,
    beta_reasoning: Annotated[float, Option("Weight of the KL on reasoning tokens.", at_least=0)] = 0.0,
    beta_knowledge: Annotated[float, Option("Weight of the KL on the rest.", at_least=0)] = 0.001,
    minibatches: opt.Minibatches = 2,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Archer's dual-token constraints (not the ArCHer of multi-turn agents, which is `archer`).

    a token is "reasoning" where the entropy of pi reaches the quantile of its reply, "knowledge" elsewhere
    L = mean over all tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A) + beta k3(pi, ref)
    eps and beta by the token's kind

    A_i = (r_i - mean r) / std r. The entropy is that of the policy at each update. A token exactly at the quantile
    is reasoning, and the KL stands in the common mean, as in the paper; the released code takes the boundary as
    knowledge, averages the KL over knowledge tokens alone, bounds k3 and adds a dual clip of 10. The paper samples
    16 replies, makes two updates of a batch, and its code passes over each batch three times.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.verify(task),
        credit=chain(credit.group_relative(), credit.behaviour(), credit.ref()),
        learn=learn.Learn(
            learn.pg_clip_by_kind(quantile, eps_reasoning, eps_knowledge),
            learn.kl_by_kind(quantile, beta_reasoning, beta_knowledge),
            minibatches=minibatches,
        ),
        models=roles(ref=frozen("policy")),
    )
