"""Reward Model Ensembles Help Mitigate Overoptimization (arXiv 2310.02743)."""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout, select
from burnish.credit.reward import bags
from burnish.learn.terms import reward as terms
from burnish.method import Method, Option, chain, method, roles, trained
from burnish.methods import papers, register
from burnish.methods.reward import END

Heads = Annotated[int, Option("Heads of the reward model.", at_least=1)]


@register(
    papers.REWARD_ENSEMBLES,
    family="reward",
    summary="An ensemble of reward models: k heads, each trained on a bootstrap sample of its own.",
    when="A policy over-optimises one reward model: heads that disagree say where not to trust it.",
)
def reward_ensemble(
    task: draw.Source,
    *,
    heads: Heads = 5,
    centre: Annotated[float, Option("Keeps scores around 0.", at_least=0)] = 0.0,
) -> Method:
    """k Bradley-Terry heads on one backbone.

    L = mean over heads j of b_j [ -log s( r_j(x, y_w) - r_j(x, y_l) ) + centre (r_jw + r_jl)^2 ],  b_j ~ Poisson(1)

    b_j is drawn once for each pair and head: a bootstrap sample. Use it with `ensemble(DIR, how=mean | worst |
    uncertainty)`: the mean, the minimum (WCO) or mean - lambda variance (UWO), lambda 0.5 for best-of-n and 0.1 for
    PPO. The paper trains k = 5 whole models that differ in their seed: train reward_model with several --seed and pass
    all their directories to `ensemble`; heads on one backbone are cheaper and agree more. heads = 1 without the
    bootstrap is reward_model.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected", reader="rm"),
        select=select.given_pairs(),
        credit=chain(END, bags(heads)),
        learn=learn.Learn(terms.head_pairs(slice(0, heads), bags="bags", centre=centre, on=learn.CLAIMED)),
        models=roles("rm", rm=trained(outputs=heads)),
        product="rm",
    )
