"""The natural-gradient step of TRPO: as far as a trust region allows, and no further.

Schulman et al., "Trust Region Policy Optimization" (arXiv 1502.05477):

    minimise the total  subject to  mean KL(pi_old || pi) <= delta
    x = F^-1 g by conjugate gradient;   step = sqrt(2 delta / x^T F x) x;   then backtrack until KL <= delta and the
    total fell

F v, the Fisher matrix times a vector, is a finite difference: the gradient of (log pi - log pi_old)^2 / 2 at
theta + e v is its gradient at theta plus e F v to first order, with F the mean of grad log pi grad log pi^T over the
sampled tokens. The gradient at theta is 0 where pi_old is the policy itself. It is not where the log-probs of pi_old
come from another engine or from another moment: there 5e-2 of difference outweighs e F v, so it is taken off.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def conjugate_gradient(times: Callable[[Tensor], Tensor], b: Tensor, iterations: int) -> Tensor:
    """x with A x = b, for a symmetric positive A given as a product with vectors."""
    x, r = torch.zeros_like(b), b.clone()
    p, rr = r.clone(), float(b @ b)
    for _ in range(iterations):
        ap = times(p)
        curvature = float(p @ ap)
        if curvature <= 0:  # not positive after all, by rounding: the steps so far stand
            break
        alpha = rr / curvature
        x, r = x + alpha * p, r - alpha * ap
        following = float(r @ r)
        if following < 1e-10 * float(b @ b):
            break
        p, rr = r + (following / rr) * p, following
    return x
