"""Segment Policy Optimization: Effective Segment-Level Credit Assignment in RL for Large Language Models (arXiv
2505.23564).
"""

from __future__ import annotations

import math
from typing import Annotated

from torch import Tensor

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, Part, Sampling, Trace, chain, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

SEGMENT_PO = Paper(
    "segment-po",
    "2505.23564",
    "Segment Policy Optimization: Effective Segment-Level Credit Assignment in RL for Large Language Models",
)


def _undecided(tag: str, below: float, *, moved: bool) -> Part:
    """The tokens that had less than this probability are claimed, and their advantages whitened.

    moved  only those whose advantage is not 0
    """

    def where(trace: Trace) -> Tensor:
        unsure = trace.by("policy" if tag in trace.tags else "nobody") & (trace.streams["old"] < math.log(below))
        return unsure & (trace.streams["adv"] != 0) if moved else unsure

    needs = ("stream:old", "stream:adv", f"tag:{tag}")
    return chain(
        credit.behaviour(),
        credit.ref(),
        credit.whiten(where=where, needs=needs),
        credit.claim("pg", "policy", where=where, needs=needs),
        credit.claim("kl", "policy", where=where, needs=needs),
    )


_Below = Annotated[float, Option("Tokens below this probability count as undecided.", above=0, at_most=1)]
_KL = Annotated[float, Option("Weight of the KL; 0 loads no reference.", at_least=0)]


@register(
    SEGMENT_PO,
    family="policy",
    summary="Advantages of segments of a reply, from fresh continuations at their ends; no critic.",
    when="Replies are long, a single verdict says too little, and you can pay for extra samples at a few cut points.",
    trial={"n": 4, "probes": 2, "interval": 4},
)
def spo_chain(
    task: draw.Source,
    *,
    n: opt.Replies = 8,
    probes: Annotated[int, Option("Continuations from each cut.", at_least=1)] = 9,
    interval: Annotated[int, Option("Cut points in a segment.", at_least=1)] = 5,
    below: _Below = 0.9,
    eps: opt.ClipRange = 0.2,
    kl: _KL = 1e-4,
    updates: opt.Updates = 1,
) -> Method:
    """SPO-chain: values by Monte Carlo where the policy was undecided.

    Cut points stand before tokens with p < `below`; from the first on, every `interval`-th bounds a segment
    V(cut) = mean score of `probes` continuations from there
    A = V(next cut) - V(cut), after the last cut: own score - V(cut)
    L = mean over tokens with p < `below` of -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + kl * mean over replies of their sum of k3
    A is whitened over those tokens; other tokens are not trained.

    The constants are the released code's. Continuations only tell values: they are not trained on. Departures:
    whitening by the population's variance, where the code has the sample's; no batch is skipped for its ratio.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.probed(n, probes, rollout.uncertain(below, interval)),
        score=score.verify(task),
        credit=chain(credit.segment_advantages(), _undecided("sample", below, moved=False)),
        learn=learn.Learn(
            learn.pg_clip(eps, on=learn.CLAIMED),
            learn.kl_k3(coef=kl, norm=learn.seq_sum_mean, on=learn.CLAIMED),
            updates=updates,
        ),
        models=roles(ref=frozen("policy")),
        sampling=Sampling(0.6, top_p=0.9),
    )


@register(
    SEGMENT_PO,
    family="policy",
    summary="A tree of replies: each segment's advantage is its value over its parent's.",
    when="As `spo_chain`, when a tree of shared prefixes is cheaper than separate probes.",
    trial={"branch": 3, "depth": 2, "segment": 4},
)
def spo_tree(
    task: draw.Source,
    *,
    branch: Annotated[int, Option("Children of each node.", at_least=2)] = 6,
    depth: Annotated[int, Option("Levels of the tree.", at_least=1)] = 3,
    segment: Annotated[int, Option("Tokens in a segment, but for the last level.", at_least=1)] = 30,
    below: _Below = 0.9,
    eps: opt.ClipRange = 0.2,
    kl: _KL = 1e-4,
    updates: opt.Updates = 1,
) -> Method:
    """SPO-tree: each node of a tree has `branch` children of `segment` tokens; the last level runs to the end.

    V(reply that ended) = its score,  V(node) = mean V of its children;   A(segment) = V(node) - V(parent)
    L = mean over tokens with p < `below` of -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + kl * mean over replies of their sum of k3
    A is whitened over those tokens. Segments with A = 0 are dropped; each segment counts and is trained once, however
    many share it.

    The constants are the released code's for short solutions (segment 30; 600 for long ones). Departures: segments
    of this step only, where the code keeps them for 8 iterations, 32 a question; whitening by the population's
    variance; no batch is skipped for its ratio.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.tree(branch, depth, segment),
        score=score.verify(task),
        credit=chain(credit.tree_advantages(), _undecided("tree", below, moved=True)),
        learn=learn.Learn(
            learn.pg_clip(eps, on=learn.CLAIMED),
            learn.kl_k3(coef=kl, norm=learn.seq_sum_mean, on=learn.CLAIMED),
            updates=updates,
        ),
        models=roles(ref=frozen("policy")),
        sampling=Sampling(0.6, top_p=0.9),
    )
