"""MetaRM: Shifted Distributions Alignment via Meta-Learning (arXiv 2405.00438)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, select
from burnish.learn.reward_head import meta_step
from burnish.learn.terms import reward as terms
from burnish.method import Method, Option, chain, frozen, method, roles, trained
from burnish.methods import opt, register
from burnish.methods.reward import END
from burnish.papers import Paper

META_RM = Paper("secrets-of-rlhf-ii", "2405.00438", "MetaRM: Shifted Distributions Alignment via Meta-Learning")


@register(
    META_RM,
    family="reward",
    summary="A reward model that learns to tell the answers of a shifted policy apart, by a meta step.",
    when="The policy has moved away from the answers that were compared, and there are no new labels.",
)
def meta_rm(
    task: draw.Source,
    *,
    n: opt.GroupSize = 4,
    eta: Annotated[
        float, Option("The step of the ascent on the shifted answers; 0 is reward_model.", at_least=0)
    ] = 1e-3,
    policy: Annotated[str | None, Option("The shifted policy; by default the model of the run.")] = None,
) -> Method:
    """MetaRM.

    J = 2/n^2 sum over i < j of s(|r_i - r_j|) over n answers of the shifted policy
    theta' = theta + eta grad J(theta);  theta <- theta - alpha grad L(theta'),  L = -log s( r(x, y_w) - r(x, y_l) )

    First order: the gradient at theta' is applied as it is. The answers need no labels. eta = 0 is reward_model.
    """
    sampled = rollout.sample(n, who="shifted", tag="sampled")
    return method(
        draw=draw.pairs(task),
        rollout=rollout.join(rollout.given("chosen", "rejected", reader="rm"), sampled),
        select=select.given_pairs(),
        credit=chain(
            END,
            credit.claim("difference", "shifted", tag="sampled", positions="end"),
        ),
        learn=learn.Learn(
            terms.score_pairs(on=learn.CLAIMED),
            terms.differences(on=learn.CLAIMED),
            move=meta_step("difference", eta),
        ),
        models=roles("rm", rm=trained(outputs=1), shifted=frozen(policy or "base")),
        product="rm",
    )
