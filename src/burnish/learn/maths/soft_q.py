"""A language model read as a soft Q-function: its logits are Q, their logsumexp is V, log pi = Q - V."""

from __future__ import annotations

import torch
from torch import Tensor


def next_values(value: Tensor, row: Tensor) -> Tensor:
    """V of the state after each token: the value at the same row's next token, and 0 after a row's last. Shapes [N]."""
    assert value.shape == row.shape
    ahead = torch.cat([value[1:], value.new_zeros(1)])
    goes_on = torch.cat([row[1:] == row[:-1], row.new_zeros(1, dtype=torch.bool)])
    return torch.where(goes_on, ahead, torch.zeros_like(ahead))


def implied_reward(logp: Tensor, value: Tensor, following: Tensor, gamma: float) -> Tensor:
    """The reward that a soft Q-function implies for a token (Wulfmeier et al., arXiv 2409.01369), per token [N].

        Q_t = log pi_t + V_t,   r_t = Q_t - gamma V_{t+1}

    Its square is the temporal-difference regulariser of inverse soft Q-learning. With gamma = 1 the rewards of a reply
    sum to log pi(reply) + V(first state).
    """
    assert logp.shape == value.shape == following.shape
    return logp + value - gamma * following
