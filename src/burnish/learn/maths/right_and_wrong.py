"""Losses on replies that are right or wrong. logp = log pi, live; old = log pi_old (or of the behaviour mu)."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def taper(log_ratio: Tensor, reward: Tensor) -> Tensor:
    """TOPR's weight of a whole reply (arXiv 2503.14286): 1 where R >= 0, [pi / mu]_0^1 where R < 0. Shapes [R], no
    gradient.

    log_ratio = log pi(y) - log mu(y), summed over the reply. On-policy it is 1: REINFORCE.
    """
    assert log_ratio.shape == reward.shape
    tapered = log_ratio.detach().clamp(max=0.0).exp()
    return torch.where(reward < 0, tapered, torch.ones_like(tapered))


def implicit_negative(logp: Tensor, old: Tensor, right: Tensor, rate: Tensor, eps: float) -> Tensor:
    """NFT's likelihoods (arXiv 2505.18116, Eq. 10), per token [N].

        R = pi / pi_old;   right:  -log R;   wrong:  -log max_v(x, eps),  x = (1 - q R) / (1 - q)
        max_v(x, eps) = sg[max(x, eps) - x] + x:  the value of the larger, the gradient of x

    right is 1 or 0, q = rate is the prompt's pass rate, strictly between 0 and 1. x is the ratio of the implicit
    negative policy (pi_old - q pi) / (1 - q) to pi_old. The gradient of a wrong token is q R / ((1 - q) max(x, eps))
    grad logp.
    The log ratio is bounded by +-10.
    """
    assert logp.shape == old.shape == right.shape == rate.shape
    log_ratio = (logp - old).clamp(-10.0, 10.0)
    x = (1 - rate * log_ratio.exp()) / (1 - rate)
    held = (x.clamp(min=eps) - x).detach() + x
    return torch.where(right > 0, -log_ratio, -held.log())


def share_wrong(rate: Tensor) -> Tensor:
    """1 - q: the prompt weight with which NFT is Dr. GRPO on-policy (A is 1 - q or -q)."""
    return 1 - rate


def odds_root(rate: Tensor) -> Tensor:
    """sqrt((1 - q) / q): the prompt weight with which NFT is GRPO on-policy (A divided by the
    population's deviation).
    """
    return ((1 - rate) / rate).sqrt()


def discriminate(right: Tensor, wrong: Tensor, tau: float) -> Tensor:
    """DisCO's objective for one question (arXiv 2505.12366), from the scores of its right [P] and wrong [M] replies.

        L = mean over right of  tau log mean over wrong of exp((s_wrong - s_right) / tau)

    tau infinite is DisCO-b, mean s_wrong - mean s_right; a small tau looks at the best-scored wrong replies alone.
    A question with only right or only wrong replies gives 0. The means are the formula's own: one number a question.
    """
    if not len(right) or not len(wrong):
        return (right.sum() + wrong.sum()) * 0
    if math.isinf(tau):
        return wrong.mean() - right.mean()
    gap = (wrong[None, :] - right[:, None]) / tau
    return tau * (torch.logsumexp(gap, 1) - math.log(len(wrong))).mean()


def held_hinge(kl: Tensor, delta: float, beta: float) -> Tensor:
    """DisCO's penalty for a divergence above delta: sg[beta max(KL - delta, 0)] KL, with the gradient of
    (beta / 2) max(KL - delta, 0)^2 (arXiv 2505.12366). Any shape; 0 up to delta."""
    return (beta * (kl - delta).clamp(min=0)).detach() * kl
