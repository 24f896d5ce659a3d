"""Length Desensitization in Direct Preference Optimization (arXiv 2409.06411)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.learn.terms import preference_pairs as pairs
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

LD_DPO = Paper("ld-dpo", "2409.06411", "Length Desensitization in Direct Preference Optimization")

REFERENCES = {"whole": pairs.desensitised, "weighted": pairs.weighted_tokens}


@register(
    LD_DPO,
    family="preference",
    summary="DPO in which tokens past the shorter reply's length count less.",
    when="DPO makes replies longer and longer.",
)
def ld_dpo(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    alpha: Annotated[float, Option("Weight of tokens past the shorter reply; 1 is DPO.", at_least=0, at_most=1)] = 0.5,
    reference: Annotated[
        str, Option("Whether the reference's log-probs are weighted too.", choices=tuple(REFERENCES))
    ] = "whole",
) -> Method:
    """LD-DPO.

    log pi^(y) = sum over t <= lp of log pi(y_t) + alpha sum over t > lp of log pi(y_t),  lp = min(|y_w|, |y_l|)
    L = -log s( beta [log pi^(y_w) - log ref(y_w)] - beta [log pi^(y_l) - log ref(y_l)] ),  mean over pairs

    alpha = 1 is DPO. Implementations differ in whether the reference is weighted; most do not (`whole`). alpha is tuned
    per model in the paper.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=chain(credit.cached_ref(task), credit.beyond_the_shorter(alpha)),
        learn=learn.Learn(REFERENCES[reference](beta, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )
