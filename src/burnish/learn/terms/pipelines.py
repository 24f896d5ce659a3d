"""Terms of published recipes."""

from __future__ import annotations

from torch import Tensor

from burnish.core.schedules import Schedule
from burnish.learn.maths import dpo_logistic
from burnish.learn.maths.pipelines import bounded_k3, mirror_pull, reward_aware
from burnish.learn.norms import Norm, token_mean, unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.compared import pair_term
from burnish.learn.terms.rows import row_mean


def dpo_normalised(beta: Schedule, *, on: Authors = "policy", name: str = "reply") -> Term:
    """DPO's logistic loss on log-ratios that are divided by the length of their reply (Tulu 3)."""
    return pair_term(
        lambda w, r, beta: dpo_logistic(w.logratio, r.logratio, beta), beta=beta, reduce=row_mean, on=on, name=name
    )


def reward_aware_pairs(beta: Schedule, eta: float, *, on: Authors = "policy", name: str = "reply") -> Term:
    """RPO: beta times the difference of log-ratios learns eta times the difference of stream "reward" (one number a
    reply).
    """
    return pair_term(
        lambda w, r, beta: reward_aware(
            beta * (w.logratio - r.logratio), (eta * (w["reward"] - r["reward"])).to(w.logratio)
        ),
        beta=beta,
        marks=("reward",),
        on=on,
        name=name,
    )


def pull_to_old(*, coef: Schedule, on: Authors = "policy", name: str = "pull") -> Term:
    """(sum over the reply of log pi / old)^2 / 2, one number a reply."""

    def loss(live: Live) -> Tensor:
        log_ratio = live.per_row(live.logp - live.old)
        live.note("log_ratio", log_ratio)
        return mirror_pull(log_ratio)

    return Term(
        name=name, on=on, unit="sequence", loss=loss, live=("logp",), streams=("old",), norm=unit_mean, coef=coef
    )


def entropy_towards(*, coef: Schedule, norm: Norm = token_mean, on: Authors = "policy", name: str = "entropy") -> Term:
    """The entropy times stream "side": its gradient is that of |H - target|, H the mean over the batch."""

    def loss(live: Live) -> Tensor:
        return live.side.to(live.entropy) * live.entropy

    return Term(name=name, on=on, unit="token", loss=loss, live=("entropy",), streams=("side",), norm=norm, coef=coef)


def kl_bounded(
    *, coef: Schedule, most: float, norm: Norm = token_mean, on: Authors = "policy", name: str = "kl"
) -> Term:
    """k3 to the reference at the sampled tokens, clipped to [0, most]."""

    def loss(live: Live) -> Tensor:
        return bounded_k3(live.logp, live.ref, most)

    return Term(name=name, on=on, unit="token", loss=loss, live=("logp",), streams=("ref",), norm=norm, coef=coef)
