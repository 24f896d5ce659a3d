"""CPGD: Toward Stable Rule-based Reinforcement Learning for Language Models (arXiv 2505.12504)."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, score
from burnish.core.schedules import Schedule
from burnish.learn.norms import Norm, group_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.surrogates import token_term
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

CPGD = Paper("cpgd", "2505.12504", "CPGD: Toward Stable Rule-based Reinforcement Learning for Language Models")


def clipped_log_ratio(logp: Tensor, old: Tensor, adv: Tensor, eps: float) -> Tensor:
    """CPGD's clipped policy gradient (arXiv 2505.12504), per token [N].

        L = -min(l A, clip(l, ln(1 - eps), ln(1 + eps)) A)

    Where the clip does not bite the gradient is -A grad logp, without a ratio in front. eps -> 1 below and infinite
    above: REINFORCE.
    """
    assert logp.shape == old.shape == adv.shape
    log_ratio = logp - old
    clipped = log_ratio.clamp(math.log1p(-eps) if eps < 1 else -math.inf, math.log1p(eps))
    return -torch.minimum(log_ratio * adv, clipped * adv)


def policy_drift(logp: Tensor, old: Tensor, cut: float) -> Tensor:
    """CPGD's policy drift (arXiv 2505.12504), per token [N].

        E = min(sg[r] - 1, cut) logp

    Its gradient is that of the k3 estimate of KL(pi_old || pi), r - 1 - log r, with the factor r - 1 bounded above by
    `cut`; its value is no divergence and may have either sign. cut infinite: k3's gradient.
    """
    assert logp.shape == old.shape
    factor = ((logp - old).detach().exp() - 1).clamp(max=cut)
    return factor * logp


def pg_log_ratio(
    eps: float, *, norm: Norm = group_mean, coef: Schedule = 1.0, on: Authors = "policy", name: str = "pg"
) -> Term:
    """CPGD: the clip on the log ratio, so that no ratio stands before the gradient."""
    return token_term(lambda live: clipped_log_ratio(live.logp, live.old, live.adv, eps), norm, coef, on, name)


def drift(cut: float, *, coef: Schedule, norm: Norm = group_mean, on: Authors = "policy", name: str = "drift") -> Term:
    """CPGD's policy drift: the gradient of KL(pi_old || pi), estimated by k3 with a bounded factor."""

    def loss(live: Live) -> Tensor:
        return policy_drift(live.logp, live.old, cut)

    return Term(name=name, on=on, unit="token", loss=loss, live=("logp",), streams=("old",), norm=norm, coef=coef)


@register(
    CPGD,
    family="policy",
    summary="A clipped log ratio, so no ratio in the gradient, and a bounded pull to the old policy.",
    when="Runs collapse through large ratios, and you want the old policy as the anchor.",
)
def cpgd(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    alpha: Annotated[float, Option("Weight of the policy drift.", at_least=0)] = 0.001,
    cut: Annotated[float, Option("The bound on the drift's factor.", unlimited=True)] = 2.0,
    minibatches: opt.Minibatches = 4,
) -> Method:
    """Clipped policy gradient optimisation with policy drift.

    l = log(pi/pi_old);  A_i = (r_i - mean r) / std r
    L = mean over groups of mean over the group's tokens of -min(l A, clip(l, ln(1-eps), ln(1+eps)) A)
      + alpha min(sg[rho] - 1, cut) log pi

    The second part has the gradient of KL(pi_old || pi), with its factor bounded above. The paper prints none of
    eps, alpha, cut: these are the values of its institute's code. Of its three prompt weights this is the one that
    scored best, 1/std; the others, and the clip that loosens along a reply, are left out. The number of updates is
    our choice.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.group_relative(), credit.behaviour()),
        learn=learn.Learn(pg_log_ratio(eps), drift(cut, coef=alpha), minibatches=minibatches),
        models=roles(),
    )
