"""Beyond Reverse KL: Generalizing Direct Preference Optimization with Diverse Divergence Constraints (arXiv
2309.16240).
"""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.learn.maths import preference_pairs as maths
from burnish.learn.terms import preference_pairs as pairs
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

F_DPO = Paper(
    "f-dpo",
    "2309.16240",
    "Beyond Reverse KL: Generalizing Direct Preference Optimization with Diverse Divergence Constraints",
)

SLOPES = {
    "reverse_kl": lambda alpha: maths.reverse_kl,
    "forward_kl": lambda alpha: maths.forward_kl,
    "jensen_shannon": lambda alpha: maths.jensen_shannon,
    "alpha": maths.alpha_divergence,
}


@register(
    F_DPO,
    family="preference",
    summary="DPO under another divergence than the reverse KL.",
    when="DPO costs too much diversity: divergences towards the forward KL keep more of it.",
)
def f_dpo(
    task: draw.Source,
    *,
    divergence: Annotated[str, Option("The divergence from the reference.", choices=tuple(SLOPES))] = "alpha",
    alpha: Annotated[float, Option("Order of the alpha-divergence, with divergence alpha.", above=0, below=1)] = 0.5,
    beta: opt.Beta = 0.1,
) -> Method:
    """f-DPO.

    u = pi(y|x) / ref(y|x);  L = -log s( beta f'(u_w) - beta f'(u_l) ),  mean over pairs
    f'(u): reverse_kl log u + 1 (DPO);  forward_kl -1/u;  jensen_shannon log(2u/(1+u));  alpha (1 - u^-alpha)/alpha

    e^x goes on as its tangent above x = 10, so that long replies stay finite; the authors' code has no such bound.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.cached_ref(task),
        learn=learn.Learn(pairs.divergence(beta, SLOPES[divergence](alpha), on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )
