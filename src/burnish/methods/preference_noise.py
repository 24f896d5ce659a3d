"""Given pairs whose labels may be wrong."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.learn.terms import preference_pairs as pairs
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, papers, register

FlipRate = Annotated[float, Option("Chance that a label is wrong.", at_least=0, below=0.5)]


@register(
    papers.CDPO,
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


@register(
    papers.RDPO,
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


@register(
    papers.LCPO,
    family="preference",
    summary="Learn how reliable the labels are while learning from them (expectation maximisation).",
    when="Some labels are wrong, and nobody knows how many.",
)
def lcpo(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    reliability: Annotated[float, Option("Share of right labels that is assumed at first.", above=0, below=1)] = 0.9,
    momentum: Annotated[float, Option("How fast that share follows the batches.", at_least=0, at_most=1)] = 0.1,
) -> Method:
    """LCPO, since its third version RE-PO, around DPO, with one annotator.

    p = s( beta [lr_w - lr_l] );  E-step: c = p eta / (p eta + (1 - p)(1 - eta)), held
    M-step: L = -c log p - (1 - c) log(1 - p),  mean over pairs;  eta <- (1 - momentum) eta + momentum mean c

    p and c come from the policy before the update. reliability = 1 would be DPO: every label is trusted.
    """
    annotator = credit.Reliability(reliability, momentum)
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=chain(
            credit.cached_ref(task), credit.streams("policy", logp="now"), credit.label_confidence(annotator, beta)
        ),
        learn=learn.Learn(pairs.trusted(beta, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )
