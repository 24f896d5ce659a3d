"""CPGD: Toward Stable Rule-based Reinforcement Learning for Language Models (arXiv 2505.12504)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

CPGD = Paper("cpgd", "2505.12504", "CPGD: Toward Stable Rule-based Reinforcement Learning for Language Models")


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
        learn=learn.Learn(learn.pg_log_ratio(eps), learn.drift(cut, coef=alpha), minibatches=minibatches),
        models=roles(),
    )
