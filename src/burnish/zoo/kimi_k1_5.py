"""Kimi k1.5: Scaling Reinforcement Learning with LLMs (arXiv 2501.12599)."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from burnish import credit, draw, learn, rollout, score
from burnish.core.schedules import Schedule
from burnish.learn.norms import unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, papers, register


def mirror_pull(log_ratio: Tensor) -> Tensor:
    """(log pi(y) / pi_i(y))^2 / 2 of whole replies [R], the second part of Kimi k1.5's Eq. 3 (arXiv 2501.12599)."""
    return log_ratio.square() / 2


def pull_to_old(*, coef: Schedule, on: Authors = "policy", name: str = "pull") -> Term:
    """(sum over the reply of log pi / old)^2 / 2, one number a reply."""

    def loss(live: Live) -> Tensor:
        log_ratio = live.per_row(live.logp - live.old)
        live.note("log_ratio", log_ratio)
        return mirror_pull(log_ratio)

    return Term(
        name=name, on=on, unit="sequence", loss=loss, live=("logp",), streams=("old",), norm=unit_mean, coef=coef
    )


@register(
    papers.KIMI_K1_5,
    family="policy",
    summary="Policy gradient with the group's mean as baseline, and a squared pull to the policy that sampled.",
    when="Several updates of a batch without ratios and clips; long replies, whose ratios are noisy.",
)
def mirror_descent(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    tau: Annotated[float, Option("How strongly the policy is held to the one that sampled.", at_least=0)] = 0.1,
    updates: opt.Updates = 4,
) -> Method:
    """Online policy mirror descent of Kimi k1.5 (section 2.3.2, Eq. 3).

    L = mean over replies of [ -(r_i - mean r) log pi(y_i) + tau/2 (log pi(y_i) / pi_old(y_i))^2 ]

    log pi is summed over the reply; pi_old is the policy that sampled, the paper's reference of the iteration. The
    first update has no pull, as pi = pi_old, whose log-probs the trainer computes itself: the sampler's rounding would
    add up over a reply. tau = 0 and one update is REINFORCE with the group's mean. tau and the
    number of updates are not printed. Left out: the reset of the optimiser at each iteration. The paper's length reward
    is --shape group_length, its sampling --draw prioritised, its partial rollouts --chunk.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.group_relative(std=False), credit.old()),
        learn=learn.Learn(learn.pg_reinforce(), pull_to_old(coef=tau), updates=updates),
        models=roles(),
    )
