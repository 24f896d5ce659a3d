"""Learning Goal-Conditioned Representations for Language Reward Models (arXiv 2407.13887)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, select
from burnish.credit.goals import goals
from burnish.learn.terms import reward as terms
from burnish.learn.terms import reward_heads as heads_terms
from burnish.method import Method, Option, chain, method, roles, trained
from burnish.methods import papers, register
from burnish.methods.reward import END


@register(
    papers.GOAL_CONDITIONED_CONTRASTIVE_RM,
    family="reward",
    summary="A reward model whose states within good replies point to their ends, by a contrastive term.",
    when="Unfinished replies are to be judged as well: the cosine to a goal is a dense value.",
)
def goal_conditioned_rm(
    task: draw.Source,
    *,
    coef: Annotated[float, Option("Weight of the contrastive term; 0 is reward_model.", at_least=0)] = 0.5,
    draws: Annotated[int, Option("Places drawn in each reply.", at_least=1)] = 16,
) -> Method:
    """Goal-conditioned representations for reward models.

    L = -log s( r_w - r_l ) + coef { -log mean s(cos(source, goal)) - log(1 - mean s(cos(source, other))) }

    Sources and later goals are states at random places of the chosen reply, others of the rejected one; the means are
    over the batch. cos is at most 1, so the term in braces is at least 0.6265. coef = 0 is reward_model. Departure: all
    drawn sources are compared with all drawn goals that follow them; the code compares all with all.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected", reader="rm"),
        select=select.given_pairs(),
        credit=chain(END, credit.claim("goal", "demo"), goals(draws)),
        learn=learn.Learn(terms.score_pairs(on=learn.CLAIMED), heads_terms.goal_contrast(coef)),
        models=roles("rm", rm=trained(outputs=1)),
        product="rm",
    )
