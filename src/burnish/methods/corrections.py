"""Importance corrections: for a sampler that is not quite the trainer, and for data that the policy no longer writes."""

from __future__ import annotations

from burnish.cast.roles import stage
from burnish.credit.group import group_relative
from burnish.credit.members import member
from burnish.credit.mismatch import Level, by_sequence, by_token, masked, truncated
from burnish.credit.streams import behaviour, old
from burnish.credit.verdicts import signed
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.learn.norms import seq_mean
from burnish.learn.terms import pg_clip
from burnish.learn.terms.right_and_wrong import pg_tapered
from burnish.method import Method, method
from burnish.methods.table import register
from burnish.parts import Part, chain
from burnish.rollout.sample import sample
from burnish.score.verify import verify
from burnish.tasks.source import Source

LEVELS: dict[str, Level] = {"token": by_token, "sequence": by_sequence}


def _level(name: str) -> Level:
    if name not in LEVELS:
        raise ValueError(f"level is {name!r}; a ratio is taken by {' or by '.join(LEVELS)}")
    return LEVELS[name]


def _corrected(task: Source, n: int, correction: Part, eps: float, minibatches: int, temperature: float) -> Method:
    """GRPO without its KL, its ratio taken to the trainer's own pi_old, each token's loss times the correction's weight."""
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=verify(task),
        credit=chain(group_relative(), old(temperature=temperature), correction, member("pg", "policy")),
        learn=Learn(pg_clip(eps, norm=seq_mean, weight="weight"), minibatches=minibatches, temperature=temperature),
        cast=stage(),
    )


@register(
    family="policy",
    catalogue=("tis",),
    title="Your Efficient RL Framework Secretly Brings You Off-Policy RL Training",
    summary="GRPO with truncated importance weights for the gap between sampler and trainer.",
    when="Sampler and trainer compute slightly different probabilities (another engine, lower precision).",
    trial={"n": 4},
)
def tis(
    task: Source, *, n: int = 8, cap: float = 2.0, level: str = "token", eps: float = 0.2, minibatches: int = 1, temperature: float = 1.0,
) -> Method:  # fmt: skip
    """Truncated importance sampling.

    w = min(pi_train(old weights) / mu, cap), mu the sampler's own probability;  rho = pi / pi_train(old weights)
    L = mean over replies of mean over tokens of -w min(rho A, clip(rho, 1-eps, 1+eps) A);  A_i = (r_i - mean r) / std r

    w is constant for the gradient and has no lower bound. The embedded engine samples with the trained weights, so w is 1 but
    for rounding; the correction earns its keep where the sampler is quantised or is another engine.
    n: replies sampled for each prompt. cap: the largest weight; the authors use 2 and 8.
    level: token, or sequence for the product over the reply. eps: the clip range. minibatches: updates made of each batch.
    """
    return _corrected(task, n, truncated(cap, _level(level)), eps, minibatches, temperature)


@register(
    family="policy",
    catalogue=("tis",),
    title="When Speed Kills Stability: Demystifying RL Collapse from the Training-Inference Mismatch",
    summary="GRPO that leaves out replies on which sampler and trainer disagree too much.",
    when="Sampler and trainer differ enough that whole replies cannot be trusted, as in long or mixture-of-experts rollouts.",
    trial={"n": 4},
)
def mis(
    task: Source, *, n: int = 8, cap: float = 2.0, level: str = "sequence", eps: float = 0.2, minibatches: int = 1, temperature: float = 1.0,
) -> Method:  # fmt: skip
    """Masked importance sampling.

    r = pi_train(old weights) / mu, of the whole reply;  w = r where r <= cap, else 0
    L = mean over replies of mean over tokens of -w min(rho A, clip(rho, 1-eps, 1+eps) A);  A_i = (r_i - mean r) / std r

    Inside the range the weight is the ratio, not 1. What is masked keeps its place in the mean.
    n: replies sampled for each prompt. cap: the largest ratio that is not masked.
    level: sequence, the product over the reply, or token. eps: the clip range. minibatches: updates made of each batch.
    """
    return _corrected(task, n, masked(0.0, cap, _level(level)), eps, minibatches, temperature)


@register(
    family="policy",
    catalogue=("tis",),
    title="Every Step Evolves: Scaling Reinforcement Learning for Trillion-Scale Thinking Model",
    arxiv="2510.18855",
    summary="GRPO that leaves out tokens on which sampler and trainer disagree either way.",
    when="Sampler and trainer disagree at single tokens, which must not reach the gradient, while the rest of the reply may.",
    trial={"n": 4},
)
def icepop(
    task: Source, *, n: int = 8, low: float = 0.5, high: float = 5.0, eps: float = 0.2, minibatches: int = 1, temperature: float = 1.0,
) -> Method:  # fmt: skip
    """IcePop: two-sided masking of tokens.

    r_t = pi_train(old weights) / mu at the token;  w = r_t where low <= r_t <= high, else 0
    L = mean over replies of mean over tokens of -w min(rho A, clip(rho, 1-eps, 1+eps) A);  A_i = (r_i - mean r) / std r;  no KL

    The mean is over a reply's full length: what is masked keeps its place. eps is GRPO's.
    n: replies sampled for each prompt. low: the smallest ratio that is not masked. high: the largest.
    eps: the clip range. minibatches: updates made of each batch.
    """
    return _corrected(task, n, masked(low, high), eps, minibatches, temperature)


@register(
    family="policy",
    catalogue=("topr",),
    title="Tapered Off-Policy REINFORCE: Stable and efficient reinforcement learning for LLMs",
    arxiv="2503.14286",
    summary="REINFORCE in which bad replies count less once the policy has left them.",
    when="You train on replies of an older policy, good and bad, and the bad ones blow up a plain importance weight.",
    trial={"n": 4},
)
def topr(task: Source, *, n: int = 8, baseline: float = 0.0, minibatches: int = 4, temperature: float = 1.0) -> Method:
    """Tapered off-policy REINFORCE.

    R = 2 score - 1 - baseline;  w = 1 where R >= 0,  w = min(pi(y) / mu(y), 1) where R < 0, of the whole reply, held constant
    L = mean over replies of -w R log pi(y) / |y|;  no KL

    mu is the policy that sampled. The paper's datasets are sampled once and walked once, with 16 or 32 replies a prompt; here
    each batch is such a dataset, walked once in a few updates.
    n: replies sampled for each prompt. baseline: taken from every reward; negative ones weigh right replies more.
    minibatches: updates made of each batch.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=verify(task),
        credit=chain(signed(baseline), behaviour(), member("pg", "policy")),
        learn=Learn(pg_tapered(norm=seq_mean), minibatches=minibatches, temperature=temperature),
        cast=stage(),
    )
