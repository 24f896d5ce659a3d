"""Terms on demonstrated tokens with advantages, and on a teacher's log-probs of sampled tokens."""

from __future__ import annotations

import torch

from burnish.core.schedules import Schedule
from burnish.learn import maths
from burnish.learn.maths.hybrid import mixture_ratio, mixture_surrogate, shaped_surrogate
from burnish.learn.norms import Norm, token_mean
from burnish.learn.term import Authors, Live, Term


def pg_shaped(
    gamma: float, *, norm: Norm = token_mean, coef: Schedule = 1.0, on: Authors = "demo", name: str = "demo"
) -> Term:
    """LUFFY's shaped surrogate on stream "demo_adv": no anchor, no clip."""

    def loss(live: Live) -> torch.Tensor:
        live.note("nll", -live.logp)
        return shaped_surrogate(live.logp, live.demo_adv, gamma)

    return Term(name=name, on=on, unit="token", loss=loss, live=("logp",), streams=("demo_adv",), norm=norm, coef=coef)


def pg_mixture(
    uniform: float,
    power: float,
    *,
    norm: Norm = token_mean,
    coef: Schedule = 1.0,
    on: Authors = "demo",
    name: str = "demo",
) -> Term:
    """RL-PLUS's surrogate on stream "demo_adv", anchored on stream "demo_old": the policy's own log-probs before the
    update.
    """

    def loss(live: Live) -> torch.Tensor:
        live.note("nll", -live.logp)
        live.note("ratio", mixture_ratio(live.logp, live.demo_old, uniform))
        return mixture_surrogate(live.logp, live.demo_old, live.demo_adv, uniform, power)

    streams = ("demo_adv", "demo_old")
    return Term(name=name, on=on, unit="token", loss=loss, live=("logp",), streams=streams, norm=norm, coef=coef)


def pg_demonstrated(*, norm: Norm = token_mean, coef: Schedule = 1.0, on: Authors = "demo", name: str = "demo") -> Term:
    """-A log pi on stream "demo_adv": imitation as far as the demonstration is worth it, and away from
    it where A < 0.
    """

    def loss(live: Live) -> torch.Tensor:
        live.note("nll", -live.logp)
        return maths.reinforce(live.logp, live.demo_adv)

    return Term(name=name, on=on, unit="token", loss=loss, live=("logp",), streams=("demo_adv",), norm=norm, coef=coef)


def teacher_k2(*, coef: Schedule, norm: Norm = token_mean, on: Authors = "policy", name: str = "kd") -> Term:
    """k2 to the teacher (stream "teacher") at the sampled tokens, each times stream "kd_weight".

    Its gradient on the policy's own samples is that of the reverse KL(pi || teacher). A token of weight 0 still counts
    in the average.
    """

    def loss(live: Live) -> torch.Tensor:
        live.note("reverse_kl", live.logp - live.teacher)
        return live.kd_weight * maths.k2(live.logp, live.teacher)

    streams = ("teacher", "kd_weight")
    return Term(name=name, on=on, unit="token", loss=loss, live=("logp",), streams=streams, norm=norm, coef=coef)
