"""Surrogates on tokens of other authors. Symbols: logp = log pi(y_t | .), live; p = pi(y_t | .); adv = A_t."""

from __future__ import annotations

from torch import Tensor


def shaped_surrogate(logp: Tensor, adv: Tensor, gamma: float) -> Tensor:
    """LUFFY's policy shaping (arXiv 2504.14945), per demonstrated token, the demonstrator's probability taken as 1.

        f(p) = p / (p + gamma)
        L = -A f(p),   dL/dlogp = -A gamma p / (p + gamma)^2

    Shapes: all [N]. The gradient is largest at p = gamma, so that unlikely demonstrated tokens are learnt too.
    gamma infinite, times gamma: -A p, the importance-weighted policy gradient with behaviour probability 1.
    """
    assert logp.shape == adv.shape, (logp.shape, adv.shape)
    p = logp.exp()
    return -adv * p / (p + gamma)


def mixture_ratio(logp: Tensor, old: Tensor, uniform: float) -> Tensor:
    """RL-PLUS's multiple importance sampling ratio (arXiv 2508.00222), per token; old = log pi_old, held.

        pi_omega = (pi_old + U) / 2        the unknown demonstrator, between the old policy and a flat one
        r = 2 p / (pi_omega + pi_old) = 4 p / (U + 3 p_old)

    Shapes: all [N]. U = 1 bounds the ratio by 4 for any token; U = p_old gives the ordinary p / p_old.
    """
    assert logp.shape == old.shape, (logp.shape, old.shape)
    return 4 * logp.exp() / (uniform + 3 * old.exp())


def exploration_weight(logp: Tensor, power: float) -> Tensor:
    """RL-PLUS's weight of an advantage, (1 - sg[p])^power: tokens that the policy already writes teach little.

    Shape [N], no gradient. power = 0 is 1 everywhere.
    """
    return (1 - logp.detach().exp()).clamp(min=0) ** power


def mixture_surrogate(logp: Tensor, old: Tensor, adv: Tensor, uniform: float, power: float) -> Tensor:
    """RL-PLUS's loss on a demonstrated token: -r A (1 - sg[p])^power, with r from `mixture_ratio`; no clip. Shapes: all
    [N].
    """
    assert logp.shape == adv.shape, (logp.shape, adv.shape)
    return -mixture_ratio(logp, old, uniform) * exploration_weight(logp, power) * adv
