"""Losses on pairs whose labels may be wrong.

Symbols: loss_kept = l(w, l) is the loss of the pair as labelled, loss_flipped = l(l, w) that of the opposite label;
eps is the chance that a label is wrong. All tensors have shape [P].
"""

from __future__ import annotations

import torch

from burnish.learn.maths.shapes import PerPair


def smoothed(loss_kept: PerPair, loss_flipped: PerPair, eps: float) -> PerPair:
    """Conservative DPO (Mitchell 2023): (1 - eps) l(w, l) + eps l(l, w).

    Its optimum is a margin of log((1-eps)/eps).
    """
    return (1 - eps) * loss_kept + eps * loss_flipped


def label_chance(loss_kept: PerPair, loss_flipped: PerPair) -> PerPair:
    """The chance that a pair loss gives to its label: p = e^-l(w,l) / (e^-l(w,l) + e^-l(l,w)).

    For DPO it is s(margin).
    """
    return torch.sigmoid(loss_flipped - loss_kept)
