"""Importance corrections: for a sampler that is not quite the trainer, and for data of an older policy."""

from __future__ import annotations

from typing import Annotated, Literal

from burnish import credit, draw, learn, rollout, score
from burnish.credit.mismatch import Level, by_sequence, by_token, truncated
from burnish.method import Method, Option, Part, chain, method, roles
from burnish.methods import Arguments, opt, papers, register, variant

LEVELS: dict[str, Level] = {"token": by_token, "sequence": by_sequence}


def corrected_policy(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    correction: Part,
    eps: opt.ClipRange = 0.2,
    minibatches: opt.Minibatches = 1,
) -> Method:
    """GRPO without its KL, its ratio taken to the trainer's own pi_old, each token's loss times its correction."""
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.group_relative(), credit.old(), correction),
        learn=learn.Learn(learn.pg_clip(eps, norm=learn.seq_mean, weight="weight"), minibatches=minibatches),
        models=roles(),
    )


RatioLevel = Annotated[Literal["token", "sequence"], Option("The unit of a ratio.")]


@register(
    papers.TIS,
    family="policy",
    summary="GRPO with truncated importance weights for the gap between sampler and trainer.",
    when="Sampler and trainer compute slightly different probabilities (another engine, lower precision).",
)
@variant(corrected_policy)
def tis(
    *,
    cap: Annotated[float, Option("The largest weight.", above=0, unlimited=True)] = 2.0,
    level: RatioLevel = "token",
) -> Arguments:
    """Truncated importance sampling.

    w = min(pi_train(old weights) / mu, cap), mu the sampler's own probability;  rho = pi / pi_train(old weights)
    L = mean over replies of mean over tokens of -w min(rho A, clip(rho, 1-eps, 1+eps) A);  A_i = (r_i - mean r) / std r

    w is constant for the gradient and has no lower bound. The embedded engine samples with the trained weights, so
    w is 1 but for rounding; the correction earns its keep where the sampler is quantised or is another engine. The
    authors use caps of 2 and 8.
    """
    return {"correction": truncated(cap, LEVELS[level])}
