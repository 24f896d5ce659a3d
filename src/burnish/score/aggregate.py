"""Pure functions from the scores of several heads or reward models to one score per reply.

Symbols: scores [n, k], n replies and k members; every function gives [n].
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Bound = Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]  # a lower bound of rewards from features


def mean(scores: Tensor) -> Tensor:
    """The mean over the members."""
    return scores.mean(-1)


def worst_case(scores: Tensor) -> Tensor:
    """Worst-case optimisation (Coste et al., arXiv 2310.02743): the minimum over the members, for each reply."""
    return scores.min(-1).values


def uncertainty_weighted(scores: Tensor, coef: float) -> Tensor:
    """Uncertainty-weighted optimisation (arXiv 2310.02743): mean - coef x variance over the members.

    The population variance, as in the paper's best-of-n; its PPO code has the unbiased one, which is coef k / (k - 1).
    """
    return scores.mean(-1) - coef * scores.var(-1, unbiased=False)


def weighted(scores: Tensor, weights: Tensor) -> Tensor:
    """sum_j w_j r_j. Weights [k], or [n, k] where each reply has its own (a gate)."""
    return (scores * weights).sum(-1)


def gated(scores: Tensor, gate: Tensor, temperature: float) -> Tensor:
    """ArmoRM's score (arXiv 2406.12845): sum_j softmax(gate / temperature)_j r_j. scores, gate: [n, k]."""
    return weighted(scores, torch.softmax(gate / temperature, -1))


def worst_group(scores: Tensor) -> Tensor:
    """MaxMin-RLHF (arXiv 2402.08925): the scores of the member whose mean over the whole batch is the lowest.

    min over members of the expectation, where `worst_case` is the expectation of the minimum, which is lower.
    """
    return scores[:, int(scores.mean(0).argmin())]


def nominal(means: Tensor, stds: Tensor) -> Tensor:
    """BRME's nominal reward (arXiv 2409.15360): the mean of the head that is the surest of this reply."""
    return means.gather(-1, stds.argmin(-1, keepdim=True)).squeeze(-1)


def robust(means: Tensor, stds: Tensor, share: float, worst: Tensor) -> Tensor:
    """BRME: share x nominal + (1 - share) x worst, worst [n] from `worst_group` (the paper's) or `worst_case`."""
    return share * nominal(means, stds) + (1 - share) * worst


def against_baseline(scores: Tensor, baseline: Tensor) -> Tensor:
    """sigmoid(r - r_0): the chance that a reply is preferred to a baseline reply (arXiv 2409.20370). Shapes [n]."""
    return torch.sigmoid(scores - baseline)


def pessimistic(features: Tensor, theta: Tensor, precision: Tensor, centre: Tensor, coef: float) -> Tensor:
    """Pessimistic MLE (Zhu et al., arXiv 2301.11270), as rewards whose mean over the batch is the paper's objective.

        J = (m - nu) . theta - coef |m - nu|_P,  m the batch's mean feature,  P = (Sigma + lambda I)^-1
        r_i = (phi_i - nu) . theta - coef (phi_i - nu)^T P (m - nu) / |m - nu|_P

    features [n, H], theta and centre (nu) [H], precision P [H, H]. The second summand is the norm's gradient at m, so
    the mean of r_i is J and the policy gradient of r is that of J. coef = 0 is the MLE's reward.
    """
    offset = features - centre
    mid = offset.mean(0)
    pull = precision @ mid
    norm = (mid @ pull).clamp(min=1e-12).sqrt()
    return offset @ theta - coef * (offset @ pull) / norm


def pessimistic_each(features: Tensor, theta: Tensor, precision: Tensor, centre: Tensor, coef: float) -> Tensor:
    """The same with a bonus per reply: (phi_i - nu) . theta - coef |phi_i - nu|_P, which is lower (Jensen)."""
    offset = features - centre
    norms = ((offset @ precision) * offset).sum(-1).clamp(min=0).sqrt()
    return offset @ theta - coef * norms


def fused(own: float, neighbours: list[tuple[float, float]], least: float, most: int) -> float:
    """RewardFusion (arXiv 2309.16155): the mean of a reply's own score and its neighbours', weighted by the cosines.

    neighbours  (score, cosine); the `most` nearest with a cosine of at least `least` count. The own weight is 1.
    """
    near = sorted((pair for pair in neighbours if pair[1] >= least), key=lambda pair: -pair[1])[:most]
    return (own + sum(score * cosine for score, cosine in near)) / (1 + sum(cosine for _, cosine in near))
