"""When Speed Kills Stability: Demystifying RL Collapse from the Training-Inference Mismatch."""

from __future__ import annotations

from typing import Annotated

from burnish import credit
from burnish.method import Option
from burnish.methods import Arguments, register, variant
from burnish.methods.corrections import LEVELS, RatioLevel, corrected_policy
from burnish.papers import Paper

MIS = Paper("tis", "", "When Speed Kills Stability: Demystifying RL Collapse from the Training-Inference Mismatch")


@register(
    MIS,
    family="policy",
    summary="GRPO that leaves out replies on which sampler and trainer disagree too much.",
    when="Sampler and trainer differ so much that whole replies cannot be trusted: long replies, mixtures of experts.",
)
@variant(corrected_policy)
def mis(
    *,
    cap: Annotated[float, Option("The largest ratio that is not masked.", above=0, unlimited=True)] = 2.0,
    level: RatioLevel = "sequence",
) -> Arguments:
    """Masked importance sampling.

    r = pi_train(old weights) / mu, of the whole reply;  w = r where r <= cap, else 0
    L = mean over replies of mean over tokens of -w min(rho A, clip(rho, 1-eps, 1+eps) A);  A_i = (r_i - mean r) / std r

    Inside the range the weight is the ratio, not 1. What is masked keeps its place in the mean.
    """
    return {"correction": credit.masked(0.0, cap, LEVELS[level])}
