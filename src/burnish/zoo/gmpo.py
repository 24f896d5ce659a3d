"""Geometric-Mean Policy Optimization (arXiv 2507.20673)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

GMPO = Paper("gmpo", "2507.20673", "Geometric-Mean Policy Optimization")


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
        learn=learn.Learn(learn.pg_geometric(eps), minibatches=minibatches),
        models=roles(),
    )
