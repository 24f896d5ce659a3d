"""Self-Exploring Language Models: Active Preference Elicitation for Online Alignment (arXiv 2405.19332)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.roles import snapshot
from burnish.learn.terms.preference_unpaired import log_ratio
from burnish.method import Method, Option, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

SELM = Paper("selm", "2405.19332", "Self-Exploring Language Models: Active Preference Elicitation for Online Alignment")

Optimism = Annotated[float, Option("Weight of the bonus; 0 leaves it out.", at_least=0)]


@register(
    SELM,
    family="preference",
    summary="Rounds of DPO on given pairs and greedy replies, whose likelihood is lowered: optimism.",
    when="You have pairs, and want the policy to explore beyond them.",
    trial={"sync": 1},
)
def selm(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.01,
    alpha: Optimism = 0.001,
    sync: opt.Sync = 1 / 3,
    reward_model: opt.RewardModel = None,
) -> Method:
    """SELM.

    y = the greedy reply of pi_t;  (w, l) = the best and the worst of y and the given chosen and rejected replies
    L = -log s( beta [lr_w - lr_l] ) + alpha beta [log pi(y|x) - log pi_t(y|x)],  lr relative to pi_t,  mean

    pi_t is the policy at the start of the round: reference and sampler. The paper ranks by PairRM, which is
    --preference pair_rm(DIR); without one the verifier or a reward model ranks. beta and alpha are those of its Zephyr
    runs. Three rounds are the paper's.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.join(
            rollout.given("chosen", "rejected"), rollout.sample(1, who="past", temperature=0.0, tag="greedy")
        ),
        score=score.scoring(task, reward_model, author="past"),
        select=select.best_vs_worst_beside("past"),
        credit=credit.ref("past"),
        learn=learn.Learn(learn.dpo(beta, on=("demo", "past")), log_ratio(coef=alpha * beta, on="past")),
        models=roles(past=snapshot("policy", sync), **score.rm_role(reward_model)),
        lr_share=0.1,
    )
