"""What terms ask of whole replies: their lengths, their means, their quantiles. One number per row, where tokens are
given.
"""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.learn.term import Live


def row_sum(live: Live, x: Tensor) -> Tensor:
    """[N] -> [R]: the sum over each reply's claimed tokens."""
    return live.per_row(x)


def row_mean(live: Live, x: Tensor) -> Tensor:
    """[N] -> [R]: the mean over each reply's claimed tokens; 0 for a row that has none."""
    return live.per_row(x) / live.per_row(torch.ones_like(x)).clamp(min=1)


def note_drift(live: Live) -> None:
    """What every surrogate notes of its tokens: the entropy of the policy, and how far it has moved from "old"."""
    log_ratio = (live.old - live.logp).detach()
    live.note("old_kl", log_ratio.exp() - log_ratio - 1)
    live.note("entropy", live.entropy)
