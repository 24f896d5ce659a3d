"""Losses on pairs relative to a reference: how the margin of two log-ratios becomes a number to minimise.

Symbols: w is preferred to l;  lr = log pi(y | x) - log ref(y | x), summed over the reply;  d = lr_w - lr_l;
r = beta lr, the implicit reward;  s = sigmoid. All tensors have shape [P] unless it is said otherwise.
"""

from __future__ import annotations

from burnish.learn.maths.shapes import PerPair


def ipo_squared(logratio_w: PerPair, logratio_l: PerPair, tau: float) -> PerPair:
    """IPO (Azar et al., arXiv 2310.12036, Eq. 17), per pair.

        L = (d - 1 / (2 tau))^2

    Log-probs are summed over the reply, as in the paper. d has a finite target, so certain preferences do not push the
    policy away from the reference without end.
    """
    return (logratio_w - logratio_l - 1 / (2 * tau)).square()


def population_squared(
    gap: PerPair, anchor_gap: PerPair, target: PerPair | float, preference: PerPair | float = 1.0
) -> PerPair:
    """INPO and MNPO, per pair: p (h - target)^2 + (1 - p) (-h - target)^2,
    h = log pi(w)/pi(l) - sum_j lambda_j log pi_j(w)/pi_j(l).

        gap         log pi(w) - log pi(l)
        anchor_gap  the same of the anchors, weighted: sum_j lambda_j (log pi_j(w) - log pi_j(l)), sum_j lambda_j = 1
        preference  p = P(w > l): the papers draw the label of a pair with it, and this is the mean over both labels

    INPO (Zhang et al., arXiv 2407.00617): anchors the reference (tau / eta) and the previous iterate (1 - tau / eta),
    target 1 / (2 eta). MNPO (arXiv 2509.23102): a population of past iterates. One anchor with weight 1 is IPO with
    tau = eta.
    """
    h = gap - anchor_gap
    return preference * (h - target).square() + (1 - preference) * (-h - target).square()
