"""Principled Reinforcement Learning with Human Feedback from Pairwise or K-wise Comparisons (arXiv 2301.11270)."""

from __future__ import annotations

from burnish import draw, learn
from burnish.learn.terms import reward as terms
from burnish.method import Method
from burnish.methods import opt, papers, register
from burnish.methods.reward import ranked_model


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
    norm); here both are trained, without the constraint.
    """
    return ranked_model(task, n, terms.score_ranking(on=learn.CLAIMED))
