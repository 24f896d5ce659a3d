"""Provably Robust DPO: Aligning Language Models with Noisy Feedback (arXiv 2403.00409)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.learn.terms import preference_pairs as pairs
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

RDPO = Paper("rdpo", "2403.00409", "Provably Robust DPO: Aligning Language Models with Noisy Feedback")

FlipRate = Annotated[float, Option("Chance that a label is wrong.", at_least=0, below=0.5)]


@register(
    RDPO,
    family="preference",
    summary="DPO whose mean over wrong labels is the loss of the true ones.",
    when="You know about how many labels are wrong.",
)
def rdpo(task: draw.Source, *, beta: opt.Beta = 0.1, eps: FlipRate = 0.1) -> Method:
    """Robust DPO.

    l(a, b) = -log s( beta [lr_a - lr_b] ),  lr = log pi(y|x) - log ref(y|x)
    L = [ (1 - eps) l(w, l) - eps l(l, w) ] / (1 - 2 eps),  mean over pairs

    Unbiased for labels that are flipped with chance eps, and without a lower bound. eps = 0 is DPO.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.cached_ref(task),
        learn=learn.Learn(pairs.robust(beta, eps, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )
