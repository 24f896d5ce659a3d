"""Surrogates on tokens of other authors. Symbols: logp = log pi(y_t | .), live; p = pi(y_t | .); adv = A_t."""

from __future__ import annotations

from burnish.learn.maths.shapes import PerToken


def shaped_surrogate(logp: PerToken, adv: PerToken, gamma: float) -> PerToken:
    """LUFFY's policy shaping (arXiv 2504.14945), per demonstrated token, the demonstrator's probability taken as 1.

        f(p) = p / (p + gamma)
        L = -A f(p),   dL/dlogp = -A gamma p / (p + gamma)^2

    Shapes: all [N]. The gradient is largest at p = gamma, so that unlikely demonstrated tokens are learnt too.
    gamma infinite, times gamma: -A p, the importance-weighted policy gradient with behaviour probability 1.
    """
    assert logp.shape == adv.shape, (logp.shape, adv.shape)
    p = logp.exp()
    return -adv * p / (p + gamma)
