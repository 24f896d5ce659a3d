"""Losses on replies that are good or bad by themselves.

Symbols: lr = log pi(y | x) - log ref(y | x), summed over the reply;  desirable [R] bool;  s = sigmoid. Shapes [R].
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def kto_value(
    logratio: Tensor, desirable: Tensor, z0: Tensor, beta: float, weight_good: float, weight_bad: float
) -> Tensor:
    """KTO (Ethayarajh et al., arXiv 2402.01306), per reply.

        desirable:    lambda_D (1 - s(beta (lr - z0)))
        undesirable:  lambda_U (1 - s(beta (z0 - lr)))

    z0 is the reference point: the KL of pi and ref, at least 0, without gradient, from prompts with the replies of
    others.
    """
    gain = torch.where(desirable, logratio - z0, z0 - logratio)
    weight = torch.where(desirable, weight_good, weight_bad)
    return weight * (1 - torch.sigmoid(beta * gain))


def bco_cross_entropy(logratio: Tensor, desirable: Tensor, delta: Tensor, weight: Tensor, beta: float) -> Tensor:
    """BCO (Jung et al., arXiv 2404.04656), per reply: a classifier whose logit is the implicit reward less its mean.

        desirable:    -log s(beta lr - delta)
        undesirable:  -weight log s(-(beta lr - delta))

    delta is half the sum of the mean rewards of both classes, a running mean without gradient; weight is the density
    ratio of the prompts, 1 where both classes have the same prompts.
    """
    logit = beta * logratio - delta
    return torch.where(desirable, -F.logsigmoid(logit), -weight * F.logsigmoid(-logit))
