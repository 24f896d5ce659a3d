"""Principled Reinforcement Learning with Human Feedback from Pairwise or K-wise Comparisons (arXiv 2301.11270)."""

from __future__ import annotations

from torch import Tensor

from burnish import draw, learn
from burnish.learn.term import Authors, Term
from burnish.learn.terms.reward import score_list_term
from burnish.method import Method
from burnish.methods import opt, papers, register
from burnish.methods.reward import ranked_model


def plackett_luce(scores: Tensor) -> Tensor:
    """List-MLE: minus the log-chance of the order itself, sum_k -log[ e^s_k / sum over i >= k of e^s_i ].

    K = 2 is logistic.
    """
    return (scores.flip(0).logcumsumexp(0).flip(0) - scores)[:-1].sum()


def score_ranking(*, trainee: str = "rm", on: Authors = "policy", name: str = "end") -> Term:
    """Plackett-Luce on the scores of a ranked list, best first; one number a list."""
    return score_list_term(plackett_luce, trainee, on, name)


@register(
    papers.PESSIMISTIC_MLE_RLHF,
    family="reward",
    summary="A reward model by the Plackett-Luce likelihood of rankings, for a pessimistic use of its scores.",
    when="Ranked replies, and a policy that must not be rewarded where the data says nothing.",
)
def pessimistic_mle(task: draw.Source, *, n: opt.GroupSize = 4) -> Method:
    """The maximum-likelihood reward model of K-wise comparisons.

    L = -sum over k < K of log[ e^r_k / sum over j >= k of e^r_j ],  best first;  mean over prompts

    It learns the reward theta . phi(x, y), phi the last hidden state. The pessimism is in its use: the scorer
    `pessimistic` subtracts coef |phi - nu| in the norm of (Sigma + lambda I)^-1, Sigma the covariance of the feature
    differences of the data. K = 2 is reward_model. Departure: the paper fixes phi and constrains theta (sum 0, bounded
    norm); here both are trained, without the constraint. The likelihood has no ties: of replies with equal scores the
    first counts and the others are left out.
    """
    return ranked_model(task, n, score_ranking(on=learn.CLAIMED))
