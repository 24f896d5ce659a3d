"""Surrogates whose gradient is a policy gradient. Symbols: logp = log pi(y_t | .), live; old = log
pi_old; adv = A_t.
"""

from __future__ import annotations

import torch

from burnish.learn.maths.shapes import AnyShape


def clipped_surrogate(
    logp: AnyShape,
    old: AnyShape,
    adv: AnyShape,
    eps_low: float | AnyShape,
    eps_high: float | AnyShape,
    dual: float | None = None,
) -> AnyShape:
    """PPO's clipped surrogate (Schulman et al., arXiv 1707.06347), per token.

        r = exp(logp - old)
        L = -min(r A, clip(r, 1 - eps_low, 1 + eps_high) A)
        with `dual` c > 1 (arXiv 1912.09729), where A < 0:  L = -max(min(r A, clip(r) A), c A)

    Shapes: all [N]; eps is one number, or one for each token (two kinds of tokens: arXiv 2507.15778). The gradient at r
    = 1 is -A grad logp.
    eps_low = eps_high = 0.2: PPO, GRPO; eps_high > eps_low: clip-higher (DAPO, arXiv 2503.14476);
    eps infinite: the plain importance-weighted policy gradient.
    """
    assert logp.shape == old.shape == adv.shape, (logp.shape, old.shape, adv.shape)
    ratio = (logp - old).exp()
    objective = torch.minimum(ratio * adv, ratio.clamp(1 - eps_low, 1 + eps_high) * adv)  # type: ignore[arg-type]
    if dual is not None:
        objective = torch.where(adv < 0, torch.maximum(objective, dual * adv), objective)
    return -objective


def was_clipped(
    logp: AnyShape, old: AnyShape, adv: AnyShape, eps_low: float | AnyShape, eps_high: float | AnyShape
) -> AnyShape:
    """1 where the clip of `clipped_surrogate` takes the gradient away: r > 1 + eps_high with A > 0, r < 1 - eps_low
    with A < 0.
    """
    ratio = (logp - old).exp()
    return (((ratio > 1 + eps_high) & (adv > 0)) | ((ratio < 1 - eps_low) & (adv < 0))).to(logp.dtype)


def reinforce(logp: AnyShape, adv: AnyShape) -> AnyShape:
    """-A log pi, per token (Williams 1992): the policy gradient without a ratio. Shapes: all [N]."""
    assert logp.shape == adv.shape
    return -adv * logp
