"""Tapered Off-Policy REINFORCE: Stable and efficient reinforcement learning for LLMs (arXiv 2503.14286)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

TOPR = Paper("topr", "2503.14286", "Tapered Off-Policy REINFORCE: Stable and efficient reinforcement learning for LLMs")


@register(
    TOPR,
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
) -> Method:
    """Tapered off-policy REINFORCE.

    R = 2 score - 1 - baseline;  w = 1 where R >= 0,  w = sg[min(pi(y) / mu(y), 1)] of the whole reply where R < 0
    L = mean over replies of -w R log pi(y) / |y|;  no KL

    mu is the policy that sampled. The paper's datasets are sampled once and passed over once, with 16 or 32 replies a
    prompt; here each batch is such a dataset, passed over once in a few updates.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.signed(baseline), credit.behaviour()),
        learn=learn.Learn(learn.pg_tapered(norm=learn.seq_mean), minibatches=minibatches),
        models=roles(),
    )
