"""Losses of reward models beyond single pairs: lists, ratings, latents, representations.

Symbols: r a score; K replies of one prompt, best first; k outputs of a model with several heads.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from burnish.learn.maths.shapes import OneNumber, PerListed


def all_pairs(scores: PerListed, levels: PerListed | None = None) -> OneNumber:
    """InstructGPT's loss on a ranking of K replies (arXiv 2203.02155), one number per prompt.

        L = 1/C(K, 2) sum over i < j of -log sigmoid(r_i - r_j)

    Each prompt weighs the same, whatever K is. scores [K], best first. levels [K]: only pairs whose levels differ
    count, and only they are divided by; without one the order of the list is strict. K = 2 is `bradley_terry`.
    """
    better = torch.ones(len(scores), len(scores), dtype=torch.bool, device=scores.device).triu(1)
    if levels is not None:
        better = better & (levels[:, None] > levels[None])
    losses = -F.logsigmoid(scores[:, None] - scores[None])
    return torch.where(better, losses, torch.zeros_like(losses)).sum() / better.sum().clamp(min=1)
