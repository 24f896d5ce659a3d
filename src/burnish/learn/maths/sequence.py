"""Losses on whole replies: pairs that are contrasted, and replies weighed by how far the policy has moved on them.

Symbols: logratio = log pi(y | x) - log anchor(y | x), summed over the reply, live; reward = r(x, y); a, b: the two
replies of a pair, in either order (every loss here is the same when they are swapped).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def relative_reward_error(
    logratio_a: Tensor, logratio_b: Tensor, reward_a: Tensor, reward_b: Tensor, scale: float
) -> Tensor:
    """The squared error with which the policy's implied reward difference misses the true one, per pair [P].

        L = ( scale (logratio_a - logratio_b) - (reward_a - reward_b) )^2

    REBEL (arXiv 2404.16767): scale = 1/eta, anchored on the policy that sampled. CoPG (arXiv 2406.19185): scale = beta,
    anchored on a fixed reference, for replies from anywhere; it is 0 where pi ~ anchor exp(r / beta). A constant
    reward difference of 1/2 gives scale^2 times IPO's loss. Where pi is the anchor the gradient is
    -2 scale (reward_a - reward_b) grad log(pi(a) / pi(b)): that of REINFORCE with each reply as the other's baseline.
    """
    assert logratio_a.shape == logratio_b.shape == reward_a.shape == reward_b.shape
    return (scale * (logratio_a - logratio_b) - (reward_a - reward_b)).square()


def pairwise_joint(logratio_a: Tensor, logratio_b: Tensor, adv: Tensor, eps: float) -> Tensor:
    """P3O's pairwise surrogate (arXiv 2310.00212) with the pair clipped as one, per pair [P].

        rho = exp(logratio),  d = logratio_a - logratio_b,  A = (r_a - r_b) / 2,  c = log(1 + eps)
        L = -sg[rho_a rho_b] min(A d, A clip(d, -c, c))

    The gradient inside the clip is -A rho_a rho_b grad log(pi(a) / pi(b)), the paper's; it stops once the odds between
    the two replies have moved by 1 + eps in the direction of A.
    """
    assert logratio_a.shape == logratio_b.shape == adv.shape
    both = (logratio_a + logratio_b).detach().exp()
    d, c = logratio_a - logratio_b, math.log1p(eps)
    return -both * torch.minimum(adv * d, adv * d.clamp(-c, c))


def pairwise_separate(logratio_a: Tensor, logratio_b: Tensor, adv: Tensor, eps: float) -> Tensor:
    """P3O's pairwise surrogate (arXiv 2310.00212) with each reply clipped by itself, per pair [P].

        rho = exp(logratio),  A = (r_a - r_b) / 2
        L = -sg[rho_b] min(rho_a A, clip(rho_a, 1 - eps, 1 + eps) A) - sg[rho_a] min(-rho_b A, -clip(rho_b, 1 - eps, 1 +
        eps) A)

    The gradient inside the clips is -A rho_a rho_b grad log(pi(a) / pi(b)), the paper's.
    """
    assert logratio_a.shape == logratio_b.shape == adv.shape
    a, b = logratio_a.exp(), logratio_b.exp()
    first = torch.minimum(a * adv, a.clamp(1 - eps, 1 + eps) * adv)
    second = torch.minimum(-b * adv, -b.clamp(1 - eps, 1 + eps) * adv)
    return -b.detach() * first - a.detach() * second


def held_ratio(logratio: Tensor, eps: float) -> Tensor:
    """sg[clip(exp(logratio), 1 - eps, 1 + eps)]: A-LoL's importance weight (arXiv 2305.14718), without gradient.

    A plain clamp: unlike PPO's minimum it never takes the gradient of log pi away. One number for each entry, a
    reply's log-ratio or a token's. eps = 0 is 1 everywhere.
    """
    return logratio.detach().exp().clamp(1 - eps, 1 + eps)
