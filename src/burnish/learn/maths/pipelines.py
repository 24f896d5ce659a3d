"""Losses of published recipes: reward-aware preferences, the pull of mirror descent, a bounded KL."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from burnish.learn.maths.divergence import k3


def reward_aware(margin: Tensor, gap: Tensor) -> Tensor:
    """KL between the preferences that a reward gap and a policy's margin imply, per pair (RPO, arXiv 2406.11704).

        D[a || b] = s(b) log(s(b) / s(a)) + (1 - s(b)) log((1 - s(b)) / (1 - s(a))),   a = margin, b = gap, s = sigmoid

    0 where the margin equals the gap; for a large gap DPO's -log s(a).
    """
    target = gap.sigmoid()
    better = target * (F.logsigmoid(gap) - F.logsigmoid(margin))
    return better + (1 - target) * (F.logsigmoid(-gap) - F.logsigmoid(-margin))


def mirror_pull(log_ratio: Tensor) -> Tensor:
    """(log pi(y) / pi_i(y))^2 / 2 of whole replies [R], the second part of Kimi k1.5's Eq. 3 (arXiv 2501.12599)."""
    return log_ratio.square() / 2


def bounded_k3(logp: Tensor, ref: Tensor, most: float) -> Tensor:
    """k3 clipped to [0, most], per token; beyond, there is no gradient (Hunyuan-TurboS, arXiv 2505.15431)."""
    return k3(logp, ref).clamp(max=most)
