"""Losses on pairs without a reference model.

Symbols: w is preferred to l;  log pi(y) is summed over the reply, m(y) = log pi(y) / |y| is its mean;  s = sigmoid.
All tensors have shape [P].
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from burnish.learn.maths.shapes import AnyShape, PerPair


def simpo_margin(mean_w: PerPair, mean_l: PerPair, beta: float, gamma: float) -> PerPair:
    """SimPO's margin (Meng et al., arXiv 2405.14734): beta (m_w - m_l) - gamma; its loss is -log s(margin)."""
    return beta * (mean_w - mean_l) - gamma


def log_odds(mean: AnyShape) -> AnyShape:
    """log( p / (1 - p) ) with p = e^m: m - log(1 - e^m).

    m is kept below -1e-6, so that a certain reply stays finite.
    """
    below = mean.clamp(max=-1e-6)
    return below - torch.log(-torch.expm1(below))


def orpo_odds(mean_w: PerPair, mean_l: PerPair) -> PerPair:
    """ORPO's odds-ratio loss (Hong et al., arXiv 2403.07691, Eq. 7): -log s( log odds(w) - log odds(l) ).

    ORPO minimises NLL(w) + lambda times this.
    """
    return -F.logsigmoid(log_odds(mean_w) - log_odds(mean_l))
