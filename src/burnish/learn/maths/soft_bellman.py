"""Soft Bellman path consistency (OREO, Wang et al., arXiv 2412.16145). Symbols: lr_t = log pi(a_t|s_t) - log
ref(a_t|s_t).
"""

from __future__ import annotations

import torch
from torch import Tensor


def to_go(x: Tensor, lengths: list[int]) -> Tensor:
    """sum over i >= t of x_i within each of the consecutive rows of these lengths: [N] -> [N]."""
    assert sum(lengths) == len(x)
    return torch.cat([part.flip(0).cumsum(0).flip(0) for part in x.split(lengths)])


def path_value_error(value: Tensor, returns: Tensor, log_ratio_to_go: Tensor, beta: float) -> Tensor:
    """The value's loss, per token [N]; gradient through V alone.

        (V(s_t) - R_t + beta sum_{i>=t} lr_i)^2

    With beta = 0 it is the squared error against the return.
    """
    assert value.shape == returns.shape == log_ratio_to_go.shape
    return (value - returns + beta * log_ratio_to_go.detach()).square()


def path_policy_error(
    log_ratio: Tensor, log_ratio_to_go: Tensor, value: Tensor, returns: Tensor, beta: float
) -> Tensor:
    """The policy's loss, per token [N]; gradient through lr_t alone.

        (V(s_t) - R_t + beta lr_t + sg[beta sum_{i>t} lr_i])^2

    It is 0 along every path of the optimal policy of the KL-regularised problem, of which V is the soft value. At
    pi = ref its gradient is -2 beta (R_t - V(s_t)) grad log pi: a policy gradient with advantage R - V.
    """
    assert log_ratio.shape == log_ratio_to_go.shape == value.shape == returns.shape
    later = (log_ratio_to_go - log_ratio).detach()
    return (value.detach() - returns + beta * (log_ratio + later)).square()
