"""T-REG: Preference Optimization with Token-Level Reward Regularization (arXiv 2412.02685)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.learn.terms import preference_pairs as pairs
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

T_REG = Paper("t-reg", "2412.02685", "T-REG: Preference Optimization with Token-Level Reward Regularization")


@register(
    T_REG,
    family="preference",
    summary="DPO with token rewards that the reference gives itself under a good and a bad instruction.",
    when="You want token-level credit without another model.",
)
def t_reg(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    alpha: Annotated[float, Option("Weight of the token regulariser; 0 is DPO.", at_least=0)] = 0.25,
    better: Annotated[str, Option("Words before the prompt that ask for a good reply.")] = (
        "Give a correct and helpful answer."
    ),
    worse: Annotated[str, Option("Words before the prompt that ask for a bad reply.")] = (
        "Give a wrong and unhelpful answer."
    ),
) -> Method:
    """T-REG.

    rhat_t = s( log ref(y_t | better, x) - log ref(y_t | worse, x) ) - 1/2
    L = -log s(m) + alpha sg[s(-m)] [R(y_w) + R(y_l)],  R(y) = -sum_t beta rhat_t log pi(y_t),  mean over pairs

    m = beta [lr_w - lr_l] is DPO's margin. alpha = 0 is DPO. The paper searches alpha in 0.1, 0.25, 0.5 and has longer
    instructions; its text was not available, so that the held weight s(-m) is the reading of two agreeing summaries.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=chain(credit.cached_ref(task), credit.contrasted_rewards(better, worse)),
        learn=learn.Learn(pairs.token_regularised(beta, alpha, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )
