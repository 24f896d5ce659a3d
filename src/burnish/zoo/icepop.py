"""Every Step Evolves: Scaling Reinforcement Learning for Trillion-Scale Thinking Model (arXiv 2510.18855)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit
from burnish.method import Option
from burnish.methods import Arguments, register, variant
from burnish.methods.corrections import corrected_policy
from burnish.papers import Paper

ICEPOP = Paper(
    "tis", "2510.18855", "Every Step Evolves: Scaling Reinforcement Learning for Trillion-Scale Thinking Model"
)


@register(
    ICEPOP,
    family="policy",
    summary="GRPO that leaves out tokens on which sampler and trainer disagree either way.",
    when="Sampler and trainer disagree at single tokens, which must not reach the gradient; the rest of the reply may.",
)
@variant(corrected_policy)
def icepop(
    *,
    low: Annotated[float, Option("The smallest ratio that is not masked.", at_least=0)] = 0.5,
    high: Annotated[float, Option("The largest ratio that is not masked.", above=0, unlimited=True)] = 5.0,
) -> Arguments:
    """IcePop: two-sided masking of tokens.

    r_t = pi_train(old weights) / mu at the token;  w = r_t where low <= r_t <= high, else 0
    L = mean over replies of mean over tokens of -w min(rho A, clip(rho, 1-eps, 1+eps) A)
    A_i = (r_i - mean r) / std r;  no KL

    The mean is over a reply's full length: what is masked keeps its place. eps is GRPO's.
    """
    return {"correction": credit.masked(low, high)}
