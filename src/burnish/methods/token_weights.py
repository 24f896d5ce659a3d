"""Group methods that do not treat all tokens of a reply alike: by their entropy, or by what they do to the entropy."""

from __future__ import annotations

import math

from burnish.cast.roles import frozen, stage
from burnish.credit.group import group_relative
from burnish.credit.members import member
from burnish.credit.streams import behaviour, ref, streams
from burnish.credit.tokens import covariance, drop_from_band, top_share
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.learn.norms import token_mean
from burnish.learn.terms import pg_clip
from burnish.learn.terms.surrogates import stay
from burnish.learn.terms.token_kinds import kl_by_kind, pg_clip_by_kind
from burnish.method import Method, method
from burnish.methods.table import register
from burnish.parts import chain
from burnish.rollout.sample import sample
from burnish.score.length import punish_overlong
from burnish.score.verify import verify
from burnish.select.filters import mixed
from burnish.tasks.source import Source

_ENTROPY = "The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models"


@register(
    family="policy",
    catalogue=("clip-cov",),
    title=_ENTROPY,
    arxiv="2505.22617",
    summary="A few tokens whose log-prob and advantage go together lose their gradient.",
    when="Entropy collapses early, and you want to leave out the few tokens that do it.",
    trial={"n": 4},
)
def clip_cov(
    task: Source, *, n: int = 8, eps: float = 1.0, share: float = 2e-4, low: float = 1.0, high: float = 5.0, minibatches: int = 4,
    temperature: float = 1.0,
) -> Method:  # fmt: skip
    """Clip-Cov: entropy is kept by sparing the policy some of the updates that would make it surer.

    cov_t = (log pi_old(y_t) - mean)(A_t - mean), means over all tokens of the batch;  A_i = (r_i - mean r) / std r
    drawn: share x N tokens at random, one at least, from those with low <= cov <= high;  keep = 0 there, else 1
    L = mean over all tokens of -keep min(rho A, clip(rho, 1-eps, 1+eps) A);  mixed groups alone, no KL

    Not the tokens of largest covariance: a random draw inside a band. The ratio's own clip stands open, as in the released
    code. Departures: the covariance is taken once, before the batch's updates, where the code takes it again for each
    micro-batch of each update and draws only among tokens that are not clipped already. The paper makes 8 updates of a batch.
    n: replies sampled for each prompt. eps: the clip range of the ratio. share: share of the tokens that are drawn.
    low: the band's lower end. high: the band's upper end. minibatches: updates made of each batch.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=verify(task),
        select=mixed(),
        credit=chain(
            group_relative(), behaviour(), covariance(), drop_from_band(low, high, share), member("pg", "policy", tag="mixed")
        ),
        learn=Learn(pg_clip(eps, norm=token_mean, weight="keep"), minibatches=minibatches, temperature=temperature),
        cast=stage(),
    )  # fmt: skip


@register(
    family="policy",
    catalogue=("clip-cov",),
    title=_ENTROPY,
    arxiv="2505.22617",
    summary="The tokens whose log-prob and advantage go most together are held near the old policy.",
    when="As `clip_cov`, with a soft hold instead of a cut.",
    trial={"n": 4},
)
def kl_cov(
    task: Source, *, n: int = 8, share: float = 2e-3, beta: float = 1.0, minibatches: int = 4, temperature: float = 1.0
) -> Method:
    """KL-Cov: a penalty on the tokens that would lower the entropy most.

    cov_t as in `clip_cov`;  top = 1 for the share of all tokens of the batch with the largest cov (one at least), else 0
    L = mean over all tokens of -rho A + beta top |log(pi/pi_old)|;  no clip, mixed groups alone, no KL to a reference

    The share is that of the paper's 7B runs (2e-4 at 32B). The covariance is taken once, before the batch's updates, where
    the released code takes it again for each micro-batch. The paper makes 8 updates of a batch.
    n: replies sampled for each prompt. share: share of the tokens that are penalised. beta: weight of the penalty.
    minibatches: updates made of each batch.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=verify(task),
        select=mixed(),
        credit=chain(
            group_relative(), behaviour(), covariance(), top_share(share),
            member("pg", "policy", tag="mixed"), member("stay", "policy", tag="mixed"),
        ),
        learn=Learn(
            pg_clip(math.inf, norm=token_mean), stay("top", coef=beta, norm=token_mean), minibatches=minibatches, temperature=temperature
        ),
        cast=stage(),
    )  # fmt: skip


@register(
    family="policy",
    catalogue=("high-entropy-tokens",),
    title="Beyond the 80/20 Rule: High-Entropy Minority Tokens Drive Effective Reinforcement Learning for LLM Reasoning",
    arxiv="2506.01939",
    summary="DAPO on the fifth of the tokens where the policy is most undecided.",
    when="Large models, long replies: most tokens are filler and only the forks should learn.",
    trial={"n": 4},
)
def high_entropy_tokens(
    task: Source, *, n: int = 8, top: float = 0.2, eps_low: float = 0.2, eps_high: float = 0.28, overlong: float = 0.2, minibatches: int = 4,
    temperature: float = 1.0,
) -> Method:  # fmt: skip
    """DAPO with the gradient of forking tokens alone.

    H_t = entropy of pi(. | before t);  the term claims the tokens with H_t among the largest `top` of the batch
    L = mean over the claimed tokens of -min(rho A, clip(rho, 1-eps_low, 1+eps_high) A);  the rest as in `dapo`

    Tokens that are not claimed leave the mean's size too. Departures: the share is pooled over the whole batch and the entropy
    is that of the policy before the batch's updates; the released code pools over a micro-batch, with the entropy of the
    moment, which would let batch splitting change the gradient. Groups that are not mixed are dropped and not refilled. The
    paper samples 16 replies to 512 prompts and makes 16 updates of them.
    n: replies sampled for each prompt. top: share of the tokens that is trained. eps_low: how far the ratio may fall before it
    is clipped. eps_high: how far it may rise. overlong: the buffer of the length punishment, as a share of the longest reply.
    minibatches: updates made of each batch.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=chain(verify(task), punish_overlong(overlong)),
        select=mixed(),
        credit=chain(
            group_relative(score="shaped"), streams("policy", logp="old", entropy="entropy", temperature=temperature),
            member("pg", "policy", tag="mixed", top=("entropy", top)),
        ),
        learn=Learn(pg_clip(eps_low, eps_high, norm=token_mean), minibatches=minibatches, temperature=temperature),
        cast=stage(),
    )  # fmt: skip


@register(
    family="policy",
    catalogue=("dual-token-archer",),
    title="Stabilizing Knowledge, Promoting Reasoning: Dual-Token Constraints for RLVR",
    arxiv="2507.15778",
    summary="A wide clip and no KL for undecided tokens, a narrow clip and a KL for the rest.",
    when="Facts should keep still while reasoning moves: undecided tokens explore, sure ones are held.",
    trial={"n": 4},
)
def dual_token_archer(
    task: Source, *, n: int = 8, quantile: float = 0.8, eps_reasoning: float = 0.5, eps_knowledge: float = 0.2, beta_reasoning: float = 0.0,
    beta_knowledge: float = 0.001, minibatches: int = 2, temperature: float = 1.0,
) -> Method:  # fmt: skip
    """Archer's dual-token constraints (not the ArCHer of multi-turn agents, which is `archer`).

    a token is "reasoning" where the entropy of pi reaches the quantile of its reply, "knowledge" elsewhere
    L = mean over all tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A) + beta k3(pi, ref), eps and beta by the token's kind

    A_i = (r_i - mean r) / std r. The entropy is that of the policy at each update. A token exactly at the quantile is
    reasoning, and the KL stands in the common mean, as in the paper; the released code takes the boundary as knowledge,
    averages the KL over knowledge tokens alone, bounds k3 and adds a dual clip of 10. The paper samples 16 replies, makes two
    updates of a batch, and its code walks each batch three times.
    n: replies sampled for each prompt. quantile: where, in a reply's entropies, reasoning begins.
    eps_reasoning: the clip range of reasoning tokens. eps_knowledge: the clip range of the rest.
    beta_reasoning: weight of the KL on reasoning tokens. beta_knowledge: weight of the KL on the rest.
    minibatches: updates made of each batch.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=verify(task),
        credit=chain(
            group_relative(), behaviour(), ref(temperature=temperature), member("pg", "policy"), member("kl", "policy")
        ),
        learn=Learn(
            pg_clip_by_kind(quantile, eps_reasoning, eps_knowledge), kl_by_kind(quantile, beta_reasoning, beta_knowledge),
            minibatches=minibatches, temperature=temperature,
        ),
        cast=stage(ref=frozen("policy")),
    )  # fmt: skip
