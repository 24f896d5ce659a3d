"""Surrogates on a ratio that are not PPO's clip. Symbols: logp = log pi, live; old = log pi_old; adv = A; l = logp -
old; r = exp(l).

All give one number per token (or per sequence, where that is what they are given) and none averages.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def soft_gate(logp: Tensor, old: Tensor, adv: Tensor, tau_pos: float, tau_neg: float) -> Tensor:
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


def held_ratio(logp: Tensor, old: Tensor, adv: Tensor, low: float, high: float) -> Tensor:
    """CISPO's clipped importance weight (MiniMax-M1, arXiv 2506.13585, Eqs. 4-5), per token [N].

        L = -sg[clip(r, low, high)] A logp

    Every token keeps a gradient; only its weight is bounded. low = 0 and high infinite: the plain importance-weighted
    policy gradient; low = high = 1: REINFORCE.
    """
    assert logp.shape == old.shape == adv.shape
    weight = (logp - old).detach().exp().clamp(low, high)
    return -weight * adv * logp


def clipped_log_ratio(logp: Tensor, old: Tensor, adv: Tensor, eps: float) -> Tensor:
    """CPGD's clipped policy gradient (arXiv 2505.12504), per token [N].

        L = -min(l A, clip(l, ln(1 - eps), ln(1 + eps)) A)

    Where the clip does not bite the gradient is -A grad logp, without a ratio in front. eps -> 1 below and infinite
    above: REINFORCE.
    """
    assert logp.shape == old.shape == adv.shape
    log_ratio = logp - old
    clipped = log_ratio.clamp(math.log1p(-eps) if eps < 1 else -math.inf, math.log1p(eps))
    return -torch.minimum(log_ratio * adv, clipped * adv)


def policy_drift(logp: Tensor, old: Tensor, cut: float) -> Tensor:
    """CPGD's policy drift (arXiv 2505.12504), per token [N].

        E = min(sg[r] - 1, cut) logp

    Its gradient is that of the k3 estimate of KL(pi_old || pi), r - 1 - log r, with the factor r - 1 bounded above by
    `cut`; its value is no divergence and may have either sign. cut infinite: k3's gradient.
    """
    assert logp.shape == old.shape
    factor = ((logp - old).detach().exp() - 1).clamp(max=cut)
    return factor * logp


def one_sided_log_ratio(logp: Tensor, old: Tensor, adv: Tensor, eps: float) -> Tensor:
    """GMPO's log ratio, clipped on the side that its advantage pushes to (arXiv 2507.20673), per token [N].

        s min(s l, s clip(l, -eps, eps)),   s = sign A

    A > 0 bounds l above by eps, A < 0 below by -eps. The mean over a reply's tokens is the log of GMPO's ratio: the
    geometric mean of clipped token ratios.
    """
    assert logp.shape == old.shape == adv.shape
    log_ratio = logp - old
    return torch.where(adv > 0, log_ratio.clamp(max=eps), log_ratio.clamp(min=-eps))


def ratio_times_advantage(log_ratio: Tensor, adv: Tensor) -> Tensor:
    """-exp(log_ratio) A: the importance-weighted objective, for a log ratio that has its bounds
    already. Any one shape.
    """
    assert log_ratio.shape == adv.shape
    return -log_ratio.exp() * adv
