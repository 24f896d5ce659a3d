"""Latent Collective Preference Optimization: A General Framework for Robust LLM Alignment (arXiv 2509.24159)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.learn.terms import preference_pairs as pairs
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, papers, register


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
