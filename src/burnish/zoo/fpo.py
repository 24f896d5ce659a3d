"""Direct Preference Optimization Using Sparse Feature-Level Constraints (arXiv 2411.07618)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.learn.terms.preference_features import feature_constrained, jump_relu
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

FPO = Paper("fpo", "2411.07618", "Direct Preference Optimization Using Sparse Feature-Level Constraints")


@register(
    FPO,
    family="preference",
    summary="DPO by mean log-ratios that holds sparse features of the hidden states to the reference's.",
    when="A sparse autoencoder of the model is at hand, and constraints should be on features.",
)
def fpo(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    alpha: Annotated[float, Option("Weight of the drift of features; 0 leaves it out.", at_least=0)] = 0.5,
    k: Annotated[int, Option("Features of a reply that are held, the largest of the policy's.", at_least=1)] = 50,
    sae: Annotated[str | None, Option("A sparse autoencoder: a safetensors file with W_enc, b_enc, threshold.")] = None,
) -> Method:
    """FPO: feature-level constrained preference optimisation.

    m(y) = mean over tokens of log pi - log ref;  F(y) = mean over tokens of the features of the last hidden state
    D(y) = mean over the k largest features of the policy's F of (F - F_ref)^2
    L = -log s( beta [m(y_w) - m(y_l)] - beta alpha [D(y_l) - sg D(y_w)] ),  mean over pairs

    As in the authors' code, whose constants are the defaults; it reads features at the last layer. Without `sae` the
    features are the hidden states themselves, which is not the paper's method but needs nothing. The reference is
    run along; the paper caches its features.
    """
    encode = (lambda states: states) if sae is None else jump_relu(sae)
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.cached_ref(task),
        learn=learn.Learn(feature_constrained(beta, alpha, k, encode, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )
