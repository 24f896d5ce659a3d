"""Terms that treat two kinds of tokens differently: "reasoning" tokens, where the policy is undecided, and the rest.

A token is a reasoning token where the policy's entropy, as it is now, reaches its reply's quantile (arXiv 2507.15778).
"""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.learn import maths
from burnish.learn.maths.policy import was_clipped
from burnish.learn.norms import Norm, token_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.rows import note_drift, row_quantile


def by_kind(live: Live, quantile: float, reasoning: float, knowledge: float) -> Tensor:
    """[N]: one number for tokens whose entropy is at or above the quantile of their reply, another for the rest."""
    undecided = live.entropy.detach() >= row_quantile(live, live.entropy, quantile)
    return torch.where(undecided, reasoning, knowledge).to(live.logp.dtype)


def pg_clip_by_kind(
    quantile: float,
    eps_reasoning: float,
    eps_knowledge: float,
    *,
    norm: Norm = token_mean,
    on: Authors = "policy",
    name: str = "pg",
) -> Term:
    """PPO's clipped surrogate with a clip range for each kind of token."""

    def loss(live: Live) -> Tensor:
        eps = by_kind(live, quantile, eps_reasoning, eps_knowledge)
        live.note("clipped", was_clipped(live.logp, live.old, live.adv, eps, eps))
        note_drift(live)
        return maths.clipped_surrogate(live.logp, live.old, live.adv, eps, eps)

    return Term(name=name, on=on, unit="token", loss=loss, live=("logp", "entropy"), streams=("adv", "old"), norm=norm)


def kl_by_kind(
    quantile: float,
    beta_reasoning: float,
    beta_knowledge: float,
    *,
    norm: Norm = token_mean,
    on: Authors = "policy",
    name: str = "kl",
) -> Term:
    """k3 to the reference (stream "ref") with a coefficient for each kind of token, in one mean over all tokens."""

    def loss(live: Live) -> Tensor:
        return by_kind(live, quantile, beta_reasoning, beta_knowledge) * maths.k3(live.logp, live.ref)

    coef = 0.0 if beta_reasoning == beta_knowledge == 0 else 1.0
    needs = ("logp", "entropy")
    return Term(name=name, on=on, unit="token", loss=loss, live=needs, streams=("ref",), norm=norm, coef=coef)
