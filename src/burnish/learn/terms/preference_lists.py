"""Terms on ranked lists of replies: each is a loss of learn/maths/preference_lists.py in a `list_term`."""

from __future__ import annotations

from torch import Tensor

from burnish.core.schedules import Schedule
from burnish.learn.maths import preference_lists as maths
from burnish.learn.maths.preference import Replies
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import list_term
from burnish.learn.terms.rows import row_mean


def lambda_rank(beta: Schedule, *, on: Authors = "policy") -> Term:
    """LiPO-lambda on the lists, labels in stream "psi"."""
    return list_term(
        lambda one, beta: maths.lipo_lambda(one.logratio, one["psi"], beta), beta=beta, marks=("psi",), on=on
    )


def reward_ranking(*, on: Authors = "policy") -> Term:
    """PRO's ranking on the lists, rewards in stream "psi"."""
    return list_term(
        lambda one, _: maths.pro_ranking(one.logp, one["psi"]), anchor=None, reduce=row_mean, marks=("psi",), on=on
    )


def posterior(gamma: float, *, on: Authors = "policy") -> Term:
    """BRAIn on the lists: rewards in stream "psi", the proposal's log-probs in stream "old"."""

    def loss(one: Replies, _: float) -> Tensor:
        return maths.brain_kl(one.logp, one.logp.detach() - one.logratio.detach(), one["old"], one["psi"], gamma)

    return list_term(loss, streams=("old",), marks=("psi",), on=on)


def nca_rewards(beta: Schedule, temperature: float, *, on: Authors = "policy") -> Term:
    """NCA on the lists, rewards in stream "psi"."""
    return list_term(
        lambda one, beta: maths.nca_list(one.logratio, one["psi"], beta, temperature),
        beta=beta,
        marks=("psi",),
        on=on,
    )


def exo_rewards(beta: Schedule, beta_reward: float, *, on: Authors = "policy") -> Term:
    """EXO on the lists, rewards in stream "psi"."""
    return list_term(
        lambda one, beta: maths.exo_list(one.logratio, one["psi"], beta, beta_reward),
        beta=beta,
        marks=("psi",),
        on=on,
    )
