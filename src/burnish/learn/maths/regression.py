"""Log-ratios regressed to advantages and to rewards."""

from __future__ import annotations

from torch import Tensor


def advantage_regression(log_ratio: Tensor, advantage: Tensor, beta: float) -> Tensor:
    """(A / beta - log pi(a|s) / ref(a|s))^2 / 2, per step (Direct Advantage Policy Optimization, arXiv 2412.18279).

    log_ratio is summed over the tokens of the step a. Shapes: [R]. At pi = ref the gradient is -(A / beta) grad log pi,
    a policy gradient; the minimum is pi = ref exp(A / beta).
    """
    assert log_ratio.shape == advantage.shape
    return (advantage / beta - log_ratio).square() / 2


def trajectory_balance(log_ratio: Tensor, reward: Tensor, beta: float) -> Tensor:
    """Trajectory balance with VarGrad's estimate of the normaliser (TBA, arXiv 2503.18929), over the n replies of a
    prompt.

        d_i = log pi(y_i) / ref(y_i) - r_i / beta;   log Z = sg[mean_j -d_j];   L = mean_i (log Z + d_i)^2

    log_ratio is summed over the tokens of a reply. Shapes: [n] -> []. Nothing in it asks who wrote the replies: its
    minimum, 0 for any replies, is pi = ref exp(r / beta) / Z. At pi = ref the gradient is REINFORCE's with the mean of
    the group as its baseline, times 2 / beta; it is that of CoPG's sum over pairs, times (n - 1) / (n beta)^2.
    """
    assert log_ratio.shape == reward.shape
    apart = log_ratio - reward / beta
    return (apart - apart.detach().mean()).square().mean()
