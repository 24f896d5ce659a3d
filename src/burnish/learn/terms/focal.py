"""The focal ranking loss of a reward model."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import logsigmoid

from burnish.learn.maths.preference import Replies
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import pair_term


def focal_ranking(difference: Tensor, gamma: float) -> Tensor:
    """-(1 - 2 max(0, sigmoid(d) - 1/2))^gamma log sigmoid(d) of d [P] (MultiCritique, arXiv 2410.15287)."""
    easy = (difference.sigmoid() - 0.5).clamp(min=0)
    return -((1 - 2 * easy) ** gamma) * logsigmoid(difference) if gamma else -logsigmoid(difference)


def focal_pairs(gamma: float, *, trainee: str = "rm", on: Authors = "policy", name: str = "end") -> Term:
    """The focal ranking loss on the scores at the claimed token, one number a pair."""

    def loss(chosen: Replies, rejected: Replies, _: float) -> Tensor:
        return focal_ranking(chosen.score - rejected.score, gamma)

    return pair_term(loss, anchor=None, output="score", trainee=trainee, on=on, name=name)
