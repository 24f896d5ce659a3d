"""Confidence Is All You Need: Few-Shot RL Fine-Tuning of Language Models (arXiv 2506.06395).

The policy's own confidence as its reward (RLSC, arXiv 2506.06395).
"""

from __future__ import annotations

import math
from typing import Annotated

from burnish import credit, draw, learn, rollout
from burnish.core.parts import Part, per_trace
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.credit.baselines import spread
from burnish.method import Method, Option, Sampling, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

RLSC = Paper("rlsc", "2506.06395", "Confidence Is All You Need: Few-Shot RL Fine-Tuning of Language Models")


def own_probability(alpha: float, *, author: str = "policy") -> Part:
    """adv = p_old(y | x) + alpha: the probability that the policy gave its own reply when it wrote it, from stream
    "old".
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        p = math.exp(float(trace.streams["old"][trace.by(author)].sum()))
        spread(trace, p + alpha)
        step.notes.add("confidence", p)

    return per_trace(
        write,
        name="own_probability",
        reads=frozenset({"stream:old", f"tokens:{author}"}),
        writes=frozenset({"stream:adv"}),
    )


@register(
    RLSC,
    family="policy",
    summary="No labels: raise the likelihood of samples by how likely they were.",
    when="There are no labels and no verifier, and the model is already good: a few steps sharpen what it believes.",
)
def rlsc(
    task: draw.Source,
    *,
    n: opt.Replies = 16,
    alpha: Annotated[float, Option("Smoothing that lets improbable replies count.", at_least=0)] = 0.1,
) -> Method:
    """Reinforcement learning via self-confidence: maximise E_{y ~ pi}[ pi(y | x) ] = sum_y pi(y | x)^2.

    L = mean over replies of -(p_old(y | x) + alpha) log pi(y | x),   y ~ p_old, p_old held

    log pi is summed over the reply and p_old(y | x) is the probability of the whole reply, both at the sampling
    temperature (the paper's equation 6 and algorithm 1, with its constants). The verifier is not asked: this
    sharpens what the policy believes already, so watch held-out accuracy and stop after 10 to 20 steps, as the
    paper does. n = 16 is the paper's.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        credit=chain(credit.behaviour(), own_probability(alpha)),
        learn=learn.Learn(learn.pg_reinforce()),
        models=roles(),
        sampling=Sampling(0.5),
    )
