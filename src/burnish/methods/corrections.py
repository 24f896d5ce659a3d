"""Importance corrections: for a sampler that is not quite the trainer, and for data of an older policy."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, Part, chain, method, roles
from burnish.methods import opt, papers, register

LEVELS: dict[str, credit.Level] = {"token": credit.by_token, "sequence": credit.by_sequence}


def _corrected(task: draw.Source, n: int, correction: Part, eps: float, minibatches: int, temperature: float) -> Method:
    """GRPO without its KL, its ratio taken to the trainer's own pi_old, each token's loss times its correction."""
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.verify(task),
        credit=chain(credit.group_relative(), credit.old(), correction),
        learn=learn.Learn(learn.pg_clip(eps, norm=learn.seq_mean, weight="weight"), minibatches=minibatches),
        models=roles(),
    )


_RatioLevel = Annotated[str, Option("The unit of a ratio.", choices=("token", "sequence"))]


@register(
    papers.TIS,
    family="policy",
    summary="GRPO with truncated importance weights for the gap between sampler and trainer.",
    when="Sampler and trainer compute slightly different probabilities (another engine, lower precision).",
)
def tis(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    cap: Annotated[float, Option("The largest weight.", above=0, unlimited=True)] = 2.0,
    level: _RatioLevel = "token",
    eps: opt.ClipRange = 0.2,
    minibatches: opt.Minibatches = 1,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Truncated importance sampling.

    w = min(pi_train(old weights) / mu, cap), mu the sampler's own probability;  rho = pi / pi_train(old weights)
    L = mean over replies of mean over tokens of -w min(rho A, clip(rho, 1-eps, 1+eps) A);  A_i = (r_i - mean r) / std r

    w is constant for the gradient and has no lower bound. The embedded engine samples with the trained weights, so
    w is 1 but for rounding; the correction earns its keep where the sampler is quantised or is another engine. The
    authors use caps of 2 and 8.
    """
    return _corrected(task, n, credit.truncated(cap, LEVELS[level]), eps, minibatches, temperature)


@register(
    papers.MIS,
    family="policy",
    summary="GRPO that leaves out replies on which sampler and trainer disagree too much.",
    when="Sampler and trainer differ so much that whole replies cannot be trusted: long replies, mixtures of experts.",
)
def mis(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    cap: Annotated[float, Option("The largest ratio that is not masked.", above=0, unlimited=True)] = 2.0,
    level: _RatioLevel = "sequence",
    eps: opt.ClipRange = 0.2,
    minibatches: opt.Minibatches = 1,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Masked importance sampling.

    r = pi_train(old weights) / mu, of the whole reply;  w = r where r <= cap, else 0
    L = mean over replies of mean over tokens of -w min(rho A, clip(rho, 1-eps, 1+eps) A);  A_i = (r_i - mean r) / std r

    Inside the range the weight is the ratio, not 1. What is masked keeps its place in the mean.
    """
    return _corrected(task, n, credit.masked(0.0, cap, LEVELS[level]), eps, minibatches, temperature)


@register(
    papers.ICEPOP,
    family="policy",
    summary="GRPO that leaves out tokens on which sampler and trainer disagree either way.",
    when="Sampler and trainer disagree at single tokens, which must not reach the gradient; the rest of the reply may.",
)
def icepop(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    low: Annotated[float, Option("The smallest ratio that is not masked.", at_least=0)] = 0.5,
    high: Annotated[float, Option("The largest ratio that is not masked.", above=0, unlimited=True)] = 5.0,
    eps: opt.ClipRange = 0.2,
    minibatches: opt.Minibatches = 1,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """IcePop: two-sided masking of tokens.

    r_t = pi_train(old weights) / mu at the token;  w = r_t where low <= r_t <= high, else 0
    L = mean over replies of mean over tokens of -w min(rho A, clip(rho, 1-eps, 1+eps) A)
    A_i = (r_i - mean r) / std r;  no KL

    The mean is over a reply's full length: what is masked keeps its place. eps is GRPO's.
    """
    return _corrected(task, n, credit.masked(low, high), eps, minibatches, temperature)


@register(
    papers.TOPR,
    family="policy",
    summary="REINFORCE in which bad replies count less once the policy has left them.",
    when="You train on replies of an older policy, good and bad, and the bad ones blow up a plain importance weight.",
)
def topr(
    task: draw.Source,
    *,
    n: opt.Replies = 8,
    baseline: Annotated[float, Option("Taken from every reward; a negative one weighs right replies more.")] = 0.0,
    minibatches: opt.Minibatches = 4,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Tapered off-policy REINFORCE.

    R = 2 score - 1 - baseline;  w = 1 where R >= 0,  w = sg[min(pi(y) / mu(y), 1)] of the whole reply where R < 0
    L = mean over replies of -w R log pi(y) / |y|;  no KL

    mu is the policy that sampled. The paper's datasets are sampled once and passed over once, with 16 or 32 replies a
    prompt; here each batch is such a dataset, passed over once in a few updates.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.verify(task),
        credit=chain(credit.signed(baseline), credit.behaviour()),
        learn=learn.Learn(learn.pg_tapered(norm=learn.seq_mean), minibatches=minibatches),
        models=roles(),
    )
