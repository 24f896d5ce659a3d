"""The reward that a language model trained by teacher forcing implies: its logits read as Q-values. Pure functions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Value = Callable[[Tensor], Tensor]  # Q-values [t, V] -> values of their states [t]

VALUES: dict[str, Value] = {
    "max": lambda q: q.amax(-1),
    "softmax": lambda q: (q.softmax(-1) * q.nan_to_num(neginf=0.0)).sum(-1),
    "logsumexp": lambda q: q.logsumexp(-1),
}


def centred(logits: Tensor) -> Tensor:
    """Logits less their mean over the words that are possible; those at minus infinity stay there and do not count."""
    possible = logits > -torch.inf
    mean = logits.where(possible, 0.0).sum(-1, keepdim=True) / possible.sum(-1, keepdim=True)
    return logits - mean


def induced_rewards(logits: Tensor, tokens: Tensor, value: Value, gamma: float = 1.0) -> Tensor:
    """[t]: r_k = f(a_k | s_k) - gamma V(s_{k+1}), V after the last token 0 (arXiv 2210.08708).

    logits [t, V] that the model gave before each token, tokens [t]. f are the centred logits, V(s) a value of f(. | s):
    the largest (max), their mean under their softmax (softmax), or their log-sum-exp. With max and gamma 1 a greedy
    reply earns f(a_1 | s_1) in all, because each step earns what it adds.
    """
    assert logits.shape[:1] == tokens.shape, (logits.shape, tokens.shape)
    q = centred(logits.float())
    chosen = q.gather(-1, tokens[:, None])[:, 0]
    following = torch.cat([value(q[1:]), q.new_zeros(1)])
    return chosen - gamma * following
