"""Losses on whole replies: pairs that are contrasted, and replies weighed by how far the policy has moved on them.

Symbols: logratio = log pi(y | x) - log anchor(y | x), summed over the reply, live; reward = r(x, y); a, b: the two
replies of a pair, in either order (every loss here is the same when they are swapped).
"""

from __future__ import annotations

from burnish.learn.maths.shapes import PerPair


def relative_reward_error(
    logratio_a: PerPair, logratio_b: PerPair, reward_a: PerPair, reward_b: PerPair, scale: float
) -> PerPair:
    """The squared error with which the policy's implied reward difference misses the true one, per pair [P].

        L = ( scale (logratio_a - logratio_b) - (reward_a - reward_b) )^2

    REBEL (arXiv 2404.16767): scale = 1/eta, anchored on the policy that sampled. CoPG (arXiv 2406.19185): scale = beta,
    anchored on a fixed reference, for replies from anywhere; it is 0 where pi ~ anchor exp(r / beta). A constant
    reward difference of 1/2 gives scale^2 times IPO's loss. Where pi is the anchor the gradient is
    -2 scale (reward_a - reward_b) grad log(pi(a) / pi(b)): that of REINFORCE with each reply as the other's baseline.
    """
    assert logratio_a.shape == logratio_b.shape == reward_a.shape == reward_b.shape
    return (scale * (logratio_a - logratio_b) - (reward_a - reward_b)).square()
