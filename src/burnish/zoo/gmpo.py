"""Geometric-Mean Policy Optimization (arXiv 2507.20673)."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, score
from burnish.core.schedules import Schedule
from burnish.learn.norms import unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.rows import row_mean
from burnish.learn.terms.surrogates import LIVE, STREAMS
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

GMPO = Paper("gmpo", "2507.20673", "Geometric-Mean Policy Optimization")


def one_sided_log_ratio(logp: Tensor, old: Tensor, adv: Tensor, eps: float) -> Tensor:
    """GMPO's log ratio, clipped on the side that its advantage pushes to (arXiv 2507.20673), per token [N].

        s min(s l, s clip(l, -eps, eps)),   s = sign A

    A > 0 bounds l above by eps, A < 0 below by -eps. The mean over a reply's tokens is the log of GMPO's ratio: the
    geometric mean of clipped token ratios.
    """
    assert logp.shape == old.shape == adv.shape
    log_ratio = logp - old
    return torch.where(adv > 0, log_ratio.clamp(max=eps), log_ratio.clamp(min=-eps))


def ratio_times_advantage(log_ratio: Tensor, adv: Tensor) -> Tensor:
    """-exp(log_ratio) A: the importance-weighted objective, for a log ratio that has its bounds
    already. Any one shape.
    """
    assert log_ratio.shape == adv.shape
    return -log_ratio.exp() * adv


def pg_geometric(eps: float, *, coef: Schedule = 1.0, on: Authors = "policy", name: str = "pg") -> Term:
    """GMPO: the geometric mean of token ratios, each clipped in log space on the side its advantage pushes to."""

    def loss(live: Live) -> Tensor:
        log_ratio = one_sided_log_ratio(live.logp, live.old, live.adv, eps)
        live.note("clipped", row_mean(live, (log_ratio != live.logp - live.old).to(log_ratio.dtype)))
        live.note("entropy", row_mean(live, live.entropy))
        return ratio_times_advantage(row_mean(live, log_ratio), row_mean(live, live.adv))

    return Term(name=name, on=on, unit="sequence", loss=loss, live=LIVE, streams=STREAMS, norm=unit_mean, coef=coef)


@register(
    GMPO,
    family="policy",
    summary="The geometric mean of token ratios, each clipped before the mean.",
    when="GRPO is unstable through a few extreme token ratios.",
)
def gmpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: Annotated[float, Option("The bound on a token's log ratio.", at_least=0, unlimited=True)] = 0.4,
    minibatches: opt.Minibatches = 4,
) -> Method:
    """Geometric-mean policy optimisation.

    l_t = log(pi/pi_old) at token t, kept below eps where A > 0 and above -eps where A < 0
    L = mean over replies of -exp(mean over tokens of l_t) A;  A_i = (r_i - mean r) / std r;  no KL

    GSPO clips after the mean, GMPO before it. The sources do not say how many updates a batch makes. eps = 0.4 is
    the paper's.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.group_relative(), credit.behaviour()),
        learn=learn.Learn(pg_geometric(eps), minibatches=minibatches),
        models=roles(),
    )
