"""A language model read as a dueling Q-function (B-Coder, Yu et al., arXiv 2310.03173): its logits are advantages."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn.functional import softplus


def dueling_advantage(logits: Tensor, action: Tensor, alpha: float) -> Tensor:
    """alpha (l(s, a) - max over a' of l(s, a')), never above 0: [N, V] logits and [N] actions -> [N].

    softmax of Q / alpha with Q = this + V(s) is the language model's own distribution, whatever V is.
    """
    assert logits.ndim == 2 and action.shape == logits.shape[:1]
    return alpha * (logits.gather(-1, action[:, None])[:, 0] - logits.max(-1).values)


def soft_abs(x: Tensor) -> Tensor:
    """(softplus(x) + softplus(-x)) / 2 - ln 2: smooth, 0 at 0, about |x| / 2 far from it."""
    return (softplus(x) + softplus(-x)) / 2 - math.log(2)


def capped_value(raw: Tensor, most: float) -> Tensor:
    """V(s) = most - soft_abs(raw): a state is never worth more than the largest reward, so no Q is either."""
    return most - soft_abs(raw)


def td_error(reward: Tensor, advantage: Tensor, value: Tensor, following: Tensor, gamma: float) -> Tensor:
    """The error of one backup, per token [N]; the value that follows is held.

        r_t + gamma sg[Q(s_{t+1}, a^_{t+1})] - Q(s_t, a_t),   Q(s_t, a_t) = advantage + value

    a^ is whatever action the backup believes in: the argmax of a fixed policy for B-Coder's conservative operator, of Q
    itself for Q-learning. With gamma = 0 it is the error of a regression on the reward.
    """
    assert reward.shape == advantage.shape == value.shape == following.shape
    return reward + gamma * following.detach() - (advantage + value)
