"""Losses on pairs: w is preferred to l."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def dpo_logistic(logratio_w: Tensor, logratio_l: Tensor, beta: float, label_smoothing: float = 0.0) -> Tensor:
    """Direct preference optimisation (Rafailov et al., arXiv 2305.18290), Eq. 7, per pair.

        logratio = log pi(y | x) - log ref(y | x), summed over the reply
        L = -log sigmoid(beta (logratio_w - logratio_l))

    label_smoothing e > 0 is cDPO: (1 - e) L(w, l) + e L(l, w). Shapes: [P].
    """
    assert logratio_w.shape == logratio_l.shape
    margin = beta * (logratio_w - logratio_l)
    return -(1 - label_smoothing) * F.logsigmoid(margin) - label_smoothing * F.logsigmoid(-margin)


def bradley_terry(score_w: Tensor, score_l: Tensor, centre: float = 0.0) -> Tensor:
    """The Bradley-Terry reward-model loss (Ouyang et al., arXiv 2203.02155, Eq. 1), per pair.

        L = -log sigmoid(r_w - r_l) + centre (r_w + r_l)^2

    The second term (arXiv 2312.09244) keeps scores centred on 0; centre = 0 is the published loss. Shapes: [P].
    """
    assert score_w.shape == score_l.shape
    return -F.logsigmoid(score_w - score_l) + centre * (score_w + score_l).square()
