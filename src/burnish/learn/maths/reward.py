"""Losses of reward models beyond single pairs: lists, ratings, latents, representations.

Symbols: r a score; K replies of one prompt, best first; k outputs of a model with several heads.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def all_pairs(scores: Tensor, levels: Tensor | None = None) -> Tensor:
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


def rating_error(predicted: Tensor, rated: Tensor) -> Tensor:
    """The squared error of ratings: the mean over the k attributes that a reply is rated for. [R, k], [R, k] -> [R].

    A missing rating is NaN in `rated` and counts nothing. A reply without any gives 0.
    """
    assert predicted.shape == rated.shape
    known = ~rated.isnan()
    errors = torch.where(known, predicted - rated.nan_to_num(0.0), torch.zeros_like(predicted)).square()
    return errors.sum(-1) / known.sum(-1).clamp(min=1)


def kl_to_standard_normal(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL( N(mean, variance) || N(0, 1) ) summed over the last dimension: 1/2 (mean^2 + var - 1 - log var)."""
    return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1)


def gaussian_error(mean: Tensor, std: Tensor, noise: Tensor, target: Tensor, likelihood: float) -> Tensor:
    """How a head that gives a mean and a standard deviation fits a target, per entry.

        (1 - likelihood) (mean + std noise - target)^2 + likelihood [ (mean - target)^2 / (2 std^2) + log std ]

    The first is the squared error of a reparameterised sample (arXiv 2409.15360), whose expectation (mean - target)^2 +
    std^2 drives std to 0. The second is the Gaussian likelihood, whose optimum is std^2 = the expected squared error.
    """
    sampled = (mean + std * noise - target).square()
    nll = (mean - target).square() / (2 * std.square()) + std.log()
    return (1 - likelihood) * sampled + likelihood * nll


def log_of_mean(each: Tensor, mean: Tensor) -> Tensor:
    """Summands whose mean over the batch is log(mean of `each`), and so is their gradient.

        log m + (p_i - m) / m,  m = `mean` the batch's mean of p, held constant

    A loss may see one micro-batch, the logarithm stands outside of the mean over the whole batch: d log m = sum dp_i /
    (n m).
    """
    held = mean.detach()
    return held.log() + (each - held) / held


def reward_difference(scores: Tensor) -> Tensor:
    """MetaRM's J = (2 / k^2) sum over i < j of sigmoid(|r_i - r_j|), k answers of a prompt (arXiv 2405.00438)."""
    gaps = torch.sigmoid((scores[:, None] - scores[None]).abs())
    return 2 / len(scores) ** 2 * gaps.triu(1).sum()


def ridge(features: Tensor, targets: Tensor, alpha: float) -> Tensor:
    """argmin_w |X w - y|^2 + alpha |w|^2 without intercept, by a solve. [n, H], [n] -> [H]."""
    gram = features.T @ features + alpha * torch.eye(features.shape[1], dtype=features.dtype, device=features.device)
    return torch.linalg.solve(gram, features.T @ targets)


def by_strength(
    strength: Tensor, cuts: tuple[float, float, float], smoothing: float, scale: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """What becomes of pairs by their preference strength (arXiv 2401.06080): flipped [P], label smoothing, margin [P].

    strength  mean over reward models of r_w - r_l
    cuts      three strengths: below the first, where it is negative, the label is flipped; up to the second, and above
              the third (whose loss would be 0 at once), labels are smoothed
    The margin is scale x strength; after a flip, scale x |strength|.
    """
    low, soft, high = cuts
    flipped = (strength < low) & (strength < 0)
    smoothed = ~flipped & ((strength < soft) | (strength > high))
    margin = torch.where(flipped, strength.abs(), strength)
    return flipped, smoothing * smoothed.to(strength), scale * margin
