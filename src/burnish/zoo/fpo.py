"""Direct Preference Optimization Using Sparse Feature-Level Constraints (arXiv 2411.07618).

FPO: a preference loss that holds sparse features of the hidden states, not whole distributions, to the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import torch
from safetensors.torch import load_file
from torch import Tensor

from burnish import draw
from burnish.core.schedules import Schedule, at
from burnish.learn.maths.preference import logistic
from burnish.learn.norms import unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.compared import note_pairs, replies_of
from burnish.learn.terms.rows import row_mean
from burnish.method import Method, Option
from burnish.methods import opt, register
from burnish.methods.given_pairs import from_pairs_and_ref
from burnish.papers import Paper

FPO = Paper("fpo", "2411.07618", "Direct Preference Optimization Using Sparse Feature-Level Constraints")


Encode = Callable[[Tensor], Tensor]  # hidden states [N, H] -> features [N, F]


def jump_relu(path: str) -> Encode:
    """The encoder of a JumpReLU sparse autoencoder: z = x W_enc + b_enc, features z where z > threshold, else 0.

    path  a safetensors file with W_enc [H, F], b_enc [F] and threshold [F] (0 where it is missing), as in Gemma Scope
    """
    if not Path(path).is_file():
        raise ValueError(
            f"there is no file {path!r} with a sparse autoencoder; pass a safetensors file with W_enc and b_enc"
        )
    stored = load_file(path)
    if "W_enc" not in stored:
        raise ValueError(f"{path} has no tensor 'W_enc' (it has {', '.join(stored)}); pass an autoencoder's weights")
    weight = stored["W_enc"]
    bias = stored.get("b_enc", torch.zeros(weight.shape[1]))
    threshold = stored.get("threshold", torch.zeros(weight.shape[1]))

    def encode(states: Tensor) -> Tensor:
        z = states @ weight.to(states) + bias.to(states)
        return torch.where(z > threshold.to(z), z, torch.zeros_like(z))

    return encode


def feature_drift(mine: Tensor, theirs: Tensor, k: int) -> Tensor:
    """Mean over the k largest features of `mine` of (mine - theirs)^2, per reply. Shapes [R, F] -> [R]."""
    top = torch.topk(mine, min(k, mine.shape[-1]), dim=-1)
    return (top.values - theirs.gather(-1, top.indices)).square().mean(-1)


def feature_constrained(
    beta: Schedule, alpha: float, k: int, encode: Encode, *, other: str = "ref", on: Authors = "policy"
) -> Term:
    """-log s( beta (m_w - m_l) - beta alpha (D_l - sg[D_w]) ), m the mean log-ratio, D the drift of the features."""

    def loss(live: Live) -> Tensor:
        everyone, now = replies_of(live, reduce=row_mean), at(beta, live.clock)
        w, r = everyone.at(live.pairs[:, 0]), everyone.at(live.pairs[:, 1])
        note_pairs(live, w, r, now)
        features = [_per_reply(live, encode(live.outputs[name])) for name in ("hidden", f"{other}.hidden")]
        drift = feature_drift(features[0], features[1].detach(), k)
        better, worse = drift[live.pairs[:, 0]].detach(), drift[live.pairs[:, 1]]
        live.note("drift", worse)
        return logistic(now * (w.logratio - r.logratio) - now * alpha * (worse - better))

    needs = ("logp", "entropy", "hidden", f"{other}.hidden")
    return Term(name="reply", on=on, unit="pair", loss=loss, live=needs, streams=("ref",), norm=unit_mean)


def _per_reply(live: Live, features: Tensor) -> Tensor:
    """[N, F] -> [R, F]: the mean over each reply's tokens."""
    sums = torch.zeros(live.rows, features.shape[-1], dtype=features.dtype, device=features.device)
    sums = sums.index_add(0, live.row, features)
    return sums / live.per_row(torch.ones_like(live.logp)).clamp(min=1)[:, None]


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

    As in the authors' code, whose constants are the defaults; it reads features at the last layer. `burnish sae` trains
    an autoencoder (the paper takes published ones of Gemma). Without `sae` the features are the hidden states
    themselves, which is not the paper's method but needs nothing. The reference is run along; the paper caches its
    features.
    """
    encode = (lambda states: states) if sae is None else jump_relu(sae)
    return from_pairs_and_ref(task, feature_constrained(beta, alpha, k, encode, on="demo"))
