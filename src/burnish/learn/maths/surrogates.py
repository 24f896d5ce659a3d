"""Surrogates on a ratio that are not PPO's clip. Symbols: logp = log pi, live; old = log pi_old; adv = A; l = logp -
old; r = exp(l).

All give one number per token (or per sequence, where that is what they are given) and none averages.
"""

from __future__ import annotations

import torch

from burnish.learn.maths.shapes import AnyShape


def soft_gate(logp: AnyShape, old: AnyShape, adv: AnyShape, tau_pos: float, tau_neg: float) -> AnyShape:
    """SAPO's soft gate in place of a clip (arXiv 2511.20347, Eqs. 5-6), per token [N].

        L = -f(r) A,   f(x) = (4 / tau) sigmoid(tau (x - 1)),   tau = tau_pos where A > 0, else tau_neg

    Its gradient is -w r A grad logp with w = 4 p (1 - p), p = sigmoid(tau (r - 1)): w is 1 at r = 1 and falls on both
    sides. At r = 1 the gradient is the policy gradient's; the value there is -2 A / tau, which compares with nothing.
    tau -> 0: w = 1 everywhere, the plain importance-weighted gradient. A log ratio above 20 counts as 20.
    """
    assert logp.shape == old.shape == adv.shape
    ratio = (logp - old).clamp(max=20.0).exp()
    tau = torch.where(adv > 0, tau_pos, tau_neg)
    return -4 / tau * torch.sigmoid(tau * (ratio - 1)) * adv


def held_ratio(logp: AnyShape, old: AnyShape, adv: AnyShape, low: float, high: float) -> AnyShape:
    """CISPO's clipped importance weight (MiniMax-M1, arXiv 2506.13585, Eqs. 4-5), per token [N].

        L = -sg[clip(r, low, high)] A logp

    Every token keeps a gradient; only its weight is bounded. low = 0 and high infinite: the plain importance-weighted
    policy gradient; low = high = 1: REINFORCE.
    """
    assert logp.shape == old.shape == adv.shape
    weight = (logp - old).detach().exp().clamp(low, high)
    return -weight * adv * logp
