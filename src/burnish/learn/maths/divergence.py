"""Estimates of KL(pi || ref) at sampled tokens (Schulman 2020, "Approximating KL divergence"). log_ratio = log ref -
log pi.

As an estimate under samples of pi: k1 and k3 are unbiased, k2 is not. As a loss: the gradient of k2 is that of the
reverse KL in expectation, k3's is the forward KL's, k1's is zero in expectation.
"""

from __future__ import annotations

from burnish.learn.maths.shapes import PerToken


def k1(logp: PerToken, ref: PerToken) -> PerToken:
    """log pi - log ref, per token [N]."""
    return logp - ref


def k2(logp: PerToken, ref: PerToken) -> PerToken:
    """(log pi - log ref)^2 / 2, per token [N]."""
    return (logp - ref).square() / 2


def k3(logp: PerToken, ref: PerToken) -> PerToken:
    """exp(d) - d - 1 with d = log ref - log pi, per token [N]: never negative (GRPO's estimate, arXiv 2402.03300, Eq.
    4).
    """
    d = ref - logp
    return d.exp() - d - 1
