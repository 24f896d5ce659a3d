"""Losses on demonstrated tokens."""

from __future__ import annotations

from burnish.learn.maths.shapes import PerToken


def nll(logp: PerToken, weight: PerToken | None = None) -> PerToken:
    """-weight log pi, per token [N]; the weight is held constant."""
    return -logp if weight is None else -weight.detach() * logp


def phi_weight(logp: PerToken) -> PerToken:
    """CHORD-phi's token weight sg[p (1 - p)], p = pi(y_t) (arXiv 2508.11408): large where the policy is undecided,
    0 both for tokens it would write anyway and for tokens that it finds impossible. Shape [N], no gradient."""
    p = logp.detach().exp()
    return p * (1 - p)
