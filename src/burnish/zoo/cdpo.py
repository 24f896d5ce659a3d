"""A note on DPO with noisy preferences & relationship to IPO."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

CDPO = Paper("cdpo", "", "A note on DPO with noisy preferences & relationship to IPO")

FlipRate = Annotated[float, Option("Chance that a label is wrong.", at_least=0, below=0.5)]


@register(
    CDPO,
    family="preference",
    summary="DPO with label smoothing: a label is wrong with a known chance.",
    when="Some labels are wrong, and margins should stay bounded.",
)
def cdpo(task: draw.Source, *, beta: opt.Beta = 0.1, eps: FlipRate = 0.1) -> Method:
    """Conservative DPO.

    l(a, b) = -log s( beta [lr_a - lr_b] ),  lr = log pi(y|x) - log ref(y|x)
    L = (1 - eps) l(w, l) + eps l(l, w),  mean over pairs

    Its optimum is a margin of log((1 - eps)/eps). It is `dpo` with label_smoothing eps, under a name of its own; the
    note that introduced it has no number of its own for eps.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.cached_ref(task),
        learn=learn.Learn(learn.dpo(beta, label_smoothing=eps, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )
