"""Beyond One-Preference-Fits-All Alignment: Multi-Objective Direct Preference Optimization (arXiv 2310.03708)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.learn.maths.preference_pairs import multi_objective
from burnish.learn.terms.compared import pair_term
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.score.objectives import brevity, implicit_score

MODPO = Paper(
    "modpo", "2310.03708", "Beyond One-Preference-Fits-All Alignment: Multi-Objective Direct Preference Optimization"
)


@register(
    MODPO,
    family="preference",
    summary="DPO with the other objectives' rewards as a margin.",
    when="Two objectives with preferences of their own, and a weight between them.",
    trial={"other": "tiny"},
    example="burnish train modpo --other runs/DIR/model",
)
def modpo(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    weight: Annotated[
        float, Option("Weight of the objective of the data; the other has the rest.", above=0, at_most=1)
    ] = 0.5,
    other: Annotated[
        str | None, Option("A policy of the other objective (DPO); its reward is beta log(pi / ref).")
    ] = None,
    reward_model: Annotated[str | None, Option("A reward model of the other objective, in place of a policy.")] = None,
) -> Method:
    """Multi-objective DPO.

    L = -log s( 1/w [ beta (lr_w - lr_l) - (1 - w) (r(x, y_w) - r(x, y_l)) ] ),  lr = log pi / ref summed over the reply

    r is another objective's reward, held: beta log(pi_other / ref) of a policy that DPO trained for it, or a reward
    model's score, which must be on that scale. Without either it is brevity: minus the share of the longest reply. Mean
    over pairs. w = 1 is DPO; 1/w makes the gradient large where w is small.
    """
    if other and reward_model:
        raise ValueError("the other objective is --other (a DPO policy) or --reward-model, not both; leave one out")
    scored, members = brevity(author="demo"), {}
    if reward_model:
        scored, members = score.reward_model(author="demo"), score.rm_role(reward_model)
    elif other:
        scored, members = implicit_score("other", beta, author="demo"), {"other": frozen(other)}
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=scored,
        select=select.given_pairs(),
        credit=chain(credit.ref(), credit.shared("reward", "objective")),
        learn=learn.Learn(
            pair_term(
                lambda w, r, beta: multi_objective(
                    w.logratio, r.logratio, w["objective"] - r["objective"], beta, weight
                ),
                beta=beta,
                marks=("objective",),
                on="demo",
            )
        ),
        models=roles(ref=frozen("policy"), **members),
        lr_share=0.1,
    )
