"""Losses on replies that are good or bad by themselves.

Symbols: lr = log pi(y | x) - log ref(y | x), summed over the reply;  desirable [R] bool;  s = sigmoid. Shapes [R].
"""

from __future__ import annotations

import torch

from burnish.learn.maths.shapes import PerReply, PerReplyBool


def kto_value(
    logratio: PerReply, desirable: PerReplyBool, z0: PerReply, beta: float, weight_good: float, weight_bad: float
) -> PerReply:
    """KTO (Ethayarajh et al., arXiv 2402.01306), per reply.

        desirable:    lambda_D (1 - s(beta (lr - z0)))
        undesirable:  lambda_U (1 - s(beta (z0 - lr)))

    z0 is the reference point: the KL of pi and ref, at least 0, without gradient, from prompts with the replies of
    others.
    """
    gain = torch.where(desirable, logratio - z0, z0 - logratio)
    weight = torch.where(desirable, weight_good, weight_bad)
    return weight * (1 - torch.sigmoid(beta * gain))
