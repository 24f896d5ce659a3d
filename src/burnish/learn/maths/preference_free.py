"""Losses on pairs without a reference model.

Symbols: w is preferred to l;  log pi(y) is summed over the reply, m(y) = log pi(y) / |y| is its mean;  s = sigmoid.
All tensors have shape [P].
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def simpo_margin(mean_w: Tensor, mean_l: Tensor, beta: float, gamma: float) -> Tensor:
    """SimPO's margin (Meng et al., arXiv 2405.14734): beta (m_w - m_l) - gamma; its loss is -log s(margin)."""
    return beta * (mean_w - mean_l) - gamma


def alphapo_margin(mean_w: Tensor, mean_l: Tensor, alpha: float, beta: float, gamma: float) -> Tensor:
    """AlphaPO's margin (Gupta et al., arXiv 2501.03884): beta (p_l^-alpha - p_w^-alpha) / alpha - gamma, p = e^m.

    The reward (1 - p^-alpha) / alpha is log p in the limit alpha -> 0, which is SimPO; alpha = -1 is linear in p.
    """
    if alpha == 0:
        return simpo_margin(mean_w, mean_l, beta, gamma)
    reward_w, reward_l = (-torch.expm1(-alpha * mean) / alpha for mean in (mean_w, mean_l))
    return beta * (reward_w - reward_l) - gamma


def log_odds(mean: Tensor) -> Tensor:
    """log( p / (1 - p) ) with p = e^m: m - log(1 - e^m).

    m is kept below -1e-6, so that a certain reply stays finite.
    """
    below = mean.clamp(max=-1e-6)
    return below - torch.log(-torch.expm1(below))


def orpo_odds(mean_w: Tensor, mean_l: Tensor) -> Tensor:
    """ORPO's odds-ratio loss (Hong et al., arXiv 2403.07691, Eq. 7): -log s( log odds(w) - log odds(l) ).

    ORPO minimises NLL(w) + lambda times this.
    """
    return -F.logsigmoid(log_odds(mean_w) - log_odds(mean_l))


def slic_hinge(logp_w: Tensor, logp_l: Tensor, delta: float) -> Tensor:
    """SLiC-HF's rank calibration (Zhao et al., arXiv 2305.10425): max(0, delta - log pi(w) + log pi(l))."""
    return (delta - logp_w + logp_l).clamp(min=0)


def conservative_contrast(mean_w: Tensor, mean_l: Tensor, lam: float, temperature: float = 1.0) -> Tensor:
    """DPPO's contrast (An et al., arXiv 2301.12842): -log[ e^(S_w/T) / (e^(S_w/T) + e^(lam S_l/T)) ].

    The paper's score S is minus the mean distance between the policy's actions and a segment's; for a language model
    it is the mean log-prob of the reply. lam < 1 pushes the worse reply down less. lam = 1 is SimPO with beta = 1/T
    and gamma = 0.
    """
    return -F.logsigmoid((mean_w - lam * mean_l) / temperature)
