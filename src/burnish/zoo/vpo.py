"""Value-Incentivized Preference Optimization: A Unified Approach to Online and Offline RLHF (arXiv 2405.19320)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.learn.terms.preference_unpaired import log_ratio
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.methods.given_pairs import from_pairs_and_ref
from burnish.papers import Paper

VPO = Paper(
    "vpo", "2405.19320", "Value-Incentivized Preference Optimization: A Unified Approach to Online and Offline RLHF"
)

Optimism = Annotated[float, Option("Weight of the bonus; 0 leaves it out.", at_least=0)]


@register(
    VPO,
    family="preference",
    summary="Online DPO with a bonus that makes the implicit reward optimistic.",
    when="Online DPO explores too little.",
)
def vpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 2,
    beta: opt.Beta = 0.1,
    alpha: Optimism = 0.01,
    reward_model: opt.RewardModel = None,
) -> Method:
    """VPO, online.

    (w, l) = the best and the worst of n samples of pi;  y ~ ref, the calibration distribution
    L = mean over pairs of -log s( beta [lr_w - lr_l] ) + alpha beta mean of [log pi(y|x) - log ref(y|x)]

    Optimism lowers the calibration replies. alpha = 0 is `online_dpo`. The formula is reconstructed from the theory
    (its sign and factor were checked numerically); alpha is a choice of ours. `vpo_offline` is the pessimistic side.
    """
    calibration = rollout.sample(1, who="ref", tag="calibration")
    return method(
        draw=draw.prompts(task),
        rollout=rollout.join(rollout.sample(n), calibration),
        score=score.scoring(task, reward_model),
        select=select.best_vs_worst_beside("ref", "policy"),
        credit=chain(credit.ref(), credit.copies(ref="calibrated")),
        learn=learn.Learn(learn.dpo(beta), log_ratio(coef=alpha * beta, on="ref", anchor="calibrated")),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    VPO,
    family="preference",
    summary="DPO with a penalty that makes the implicit reward pessimistic.",
    when="Given pairs cover little, and DPO over-optimises.",
)
def vpo_offline(task: draw.Source, *, beta: opt.Beta = 0.1, alpha: Optimism = 0.01) -> Method:
    """VPO, offline.

    L = mean over pairs of -log s( beta [lr_w - lr_l] ) - alpha beta mean of [log pi(y|x) - log ref(y|x)],  y the chosen

    Pessimism raises the calibration replies, which are the chosen ones. alpha = 0 is DPO. As in `vpo`, alpha is ours.
    """
    return from_pairs_and_ref(
        task,
        learn.dpo(beta, on="demo"),
        log_ratio(coef=-alpha * beta, on=learn.CLAIMED),
        then=credit.claim("bonus", "demo", tag="chosen"),
    )
