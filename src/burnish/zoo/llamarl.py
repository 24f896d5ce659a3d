"""LlamaRL: A Distributed Asynchronous Reinforcement Learning Framework for Efficient Large-scale LLM Training
(arXiv 2505.24034).
"""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

LLAMARL = Paper(
    "llamarl",
    "2505.24034",
    "LlamaRL: A Distributed Asynchronous Reinforcement Learning Framework for Efficient Large-scale LLM Training",
)


@register(
    LLAMARL,
    family="policy",
    summary="REINFORCE with importance weights that are bounded above and nowhere else, for stale samples.",
    when="Sampling runs ahead of learning (`--lag`), and every token should keep its gradient.",
    example="burnish train aipo --lag 1",
)
def aipo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    rho: Annotated[float, Option("The largest weight.", above=0, unlimited=True)] = 4.0,
    minibatches: opt.Minibatches = 1,
) -> Method:
    """Asynchronous importance-weighted policy optimisation, the loss of LlamaRL.

    w_t = sg[min(pi / mu, rho)] at each token, mu the policy that sampled it;  A_i = r_i - mean r
    L = mean over replies of sum over tokens of -w_t A_i log pi;  no lower bound, no KL

    The paper takes rho between 2 and 10. On fresh samples w is 1: REINFORCE with the mean of the group as its
    baseline. The rest of the paper is a system: what of it is an option here stands in docs/async.md. Departures:
    the body of the paper could not be read, nor is there code: the formula follows its abstract and summaries; the
    group's mean as baseline and the sum over a reply's tokens are our reading.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.group_relative(std=False), credit.behaviour()),
        learn=learn.Learn(learn.pg_held_ratio(0.0, rho, norm=learn.seq_sum_mean), minibatches=minibatches),
        models=roles(),
    )
