"""When Speed Kills Stability: Demystifying RL Collapse from the Training-Inference Mismatch."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw
from burnish.method import Method, Option
from burnish.methods import opt, register
from burnish.methods.corrections import corrected_policy
from burnish.papers import Paper

MIS = Paper("tis", "", "When Speed Kills Stability: Demystifying RL Collapse from the Training-Inference Mismatch")

LEVELS: dict[str, credit.Level] = {"token": credit.by_token, "sequence": credit.by_sequence}
_RatioLevel = Annotated[str, Option("The unit of a ratio.", choices=("token", "sequence"))]


@register(
    MIS,
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
) -> Method:
    """Masked importance sampling.

    r = pi_train(old weights) / mu, of the whole reply;  w = r where r <= cap, else 0
    L = mean over replies of mean over tokens of -w min(rho A, clip(rho, 1-eps, 1+eps) A);  A_i = (r_i - mean r) / std r

    Inside the range the weight is the ratio, not 1. What is masked keeps its place in the mean.
    """
    return corrected_policy(task, n, credit.masked(0.0, cap, LEVELS[level]), eps, minibatches)
