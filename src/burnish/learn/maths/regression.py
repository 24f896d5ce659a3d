"""Log-ratios regressed to advantages and to rewards."""

from __future__ import annotations

from burnish.learn.maths.shapes import PerReply


def advantage_regression(log_ratio: PerReply, advantage: PerReply, beta: float) -> PerReply:
    """(A / beta - log pi(a|s) / ref(a|s))^2 / 2, per step (Direct Advantage Policy Optimization, arXiv 2412.18279).

    log_ratio is summed over the tokens of the step a. Shapes: [R]. At pi = ref the gradient is -(A / beta) grad log pi,
    a policy gradient; the minimum is pi = ref exp(A / beta).
    """
    assert log_ratio.shape == advantage.shape
    return (advantage / beta - log_ratio).square() / 2
