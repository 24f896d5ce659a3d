"""Losses on pairs whose labels may be wrong.

Symbols: loss_kept = l(w, l) is the loss of the pair as labelled, loss_flipped = l(l, w) that of the opposite label;
eps is the chance that a label is wrong. All tensors have shape [P].
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def smoothed(loss_kept: Tensor, loss_flipped: Tensor, eps: float) -> Tensor:
    """Conservative DPO (Mitchell 2023): (1 - eps) l(w, l) + eps l(l, w).

    Its optimum is a margin of log((1-eps)/eps).
    """
    return (1 - eps) * loss_kept + eps * loss_flipped


def unbiased(loss_kept: Tensor, loss_flipped: Tensor, eps: float) -> Tensor:
    """Robust DPO (Chowdhury et al., arXiv 2403.00409): [ (1 - eps) l(w, l) - eps l(l, w) ] / (1 - 2 eps).

    Its mean over labels that are flipped with chance eps is the loss of the true label. It has no lower bound.
    """
    if not 0 <= eps < 0.5:
        raise ValueError(f"a flip rate of {eps} is not in [0, 0.5); at 0.5 labels say nothing")
    return ((1 - eps) * loss_kept - eps * loss_flipped) / (1 - 2 * eps)


def label_chance(loss_kept: Tensor, loss_flipped: Tensor) -> Tensor:
    """The chance that a pair loss gives to its label: p = e^-l(w,l) / (e^-l(w,l) + e^-l(l,w)).

    For DPO it is s(margin).
    """
    return torch.sigmoid(loss_flipped - loss_kept)


def trust(chance: Tensor, reliability: float) -> Tensor:
    """RE-PO's E-step (LCPO, arXiv 2509.24159): c = p eta / (p eta + (1 - p)(1 - eta)).

    c is the posterior that a label is right.

    eta is the annotator's reliability. eta = 1 is c = 1 for any p > 0; eta = 1/2 is c = p.
    """
    right = chance * reliability
    return right / (right + (1 - chance) * (1 - reliability))


def trusted(loss_kept: Tensor, loss_flipped: Tensor, confidence: Tensor) -> Tensor:
    """RE-PO's M-step (arXiv 2509.24159): -c log p - (1 - c) log(1 - p), p the chance that the loss gives to the label.

    c is held. For DPO it is c l(w, l) + (1 - c) l(l, w); for other losses it is not. c = 1 is -log p.
    """
    log_odds = loss_flipped - loss_kept
    return -confidence * F.logsigmoid(log_odds) - (1 - confidence) * F.logsigmoid(-log_odds)
