"""Losses on ranked lists of replies.

Symbols: K replies of one prompt, best first;  s = beta lr, the scores of the policy;  lr = log pi - log ref of the
whole reply;  psi, r: labels and rewards. All tensors have shape [K], all results are one number.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from burnish.learn.maths.shapes import OneNumber, PerListed


def pair_logistic(logratio: PerListed, labels: PerListed, beta: float) -> OneNumber:
    """LiPO's pair-logistic loss: the sum over psi_i > psi_j of log(1 + e^-(s_i - s_j)). K = 2 is DPO."""
    scores = beta * logratio
    losses = -F.logsigmoid(scores[:, None] - scores[None])
    return torch.where(labels[:, None] > labels[None], losses, torch.zeros_like(losses)).sum()
