"""Terms for reward models whose outputs are more than scores: means with deviations, latents of users, goals."""

from __future__ import annotations

from torch import Tensor


def latent_posterior(contexts: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Mean and log variance, both within [-1, 1], of q(z | context) from its encodings [m, 2 size], averaged over m.

    Without any context it is the prior: 0 and 0.
    """
    if not len(contexts):
        return contexts.new_zeros(size), contexts.new_zeros(size)
    mean, log_variance = contexts.mean(0).clamp(-1, 1).split(size)
    return mean, log_variance
