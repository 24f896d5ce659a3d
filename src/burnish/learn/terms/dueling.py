"""Terms of a dueling Q-function whose advantages are the policy's logits and whose value is the critic's."""

from __future__ import annotations

from torch import Tensor

from burnish.core.schedules import Schedule
from burnish.learn.maths.dueling import capped_value, dueling_advantage, td_error
from burnish.learn.maths.soft_q import next_values
from burnish.learn.norms import Norm, seq_mean, seq_sum_mean
from burnish.learn.term import Authors, Live, Term

_STREAMS = ("token", "backup", "reward")


def _squared_error(live: Live, logits: Tensor, raw: Tensor, alpha: float, gamma: float, most: float) -> Tensor:
    """(r_t + gamma sg[Q(s_{t+1}, a^_{t+1})] - Q(s_t, a_t))^2 per token; a^ is stream "backup", 0
    follows a row's last.
    """
    value = capped_value(raw, most)
    advantage = dueling_advantage(logits, live.token, alpha)
    believed = dueling_advantage(logits, live.backup.long(), alpha) + value
    error = td_error(live.reward, advantage, value, next_values(believed, live.row), gamma)
    live.note("q", advantage + value)
    return error.square()


def dueling_policy(
    alpha: float,
    gamma: float,
    most: float,
    *,
    norm: Norm = seq_mean,
    critic: str = "critic",
    on: Authors = "policy",
    name: str = "q",
) -> Term:
    """The temporal-difference loss of Q, as far as it moves the policy's logits; the critic's values
    are those of now.
    """

    def loss(live: Live) -> Tensor:
        return _squared_error(live, live.logits, live.outputs[f"{critic}.value"], alpha, gamma, most)

    return Term(
        name=name, on=on, unit="token", loss=loss, live=("logits", f"{critic}.value"), streams=_STREAMS, norm=norm
    )


def dueling_value(
    alpha: float,
    gamma: float,
    most: float,
    *,
    norm: Norm = seq_mean,
    trainee: str = "critic",
    on: Authors = "policy",
    name: str = "value",
) -> Term:
    """The same loss, as far as it moves the critic; the policy's logits are those of now."""

    def loss(live: Live) -> Tensor:
        return _squared_error(live, live.outputs["policy.logits"], live.outputs["value"], alpha, gamma, most)

    return Term(
        name=name,
        on=on,
        unit="token",
        loss=loss,
        live=("value", "policy.logits"),
        streams=_STREAMS,
        norm=norm,
        trainee=trainee,
    )


def no_advantage_lost(
    alpha: float, *, coef: Schedule, norm: Norm = seq_sum_mean, on: Authors = "policy", name: str = "best"
) -> Term:
    """|A(s, a)| of demonstrated tokens: none of them may be worse than the best."""

    def loss(live: Live) -> Tensor:
        return -dueling_advantage(live.logits, live.token, alpha)

    return Term(name=name, on=on, unit="token", loss=loss, live=("logits",), streams=("token",), norm=norm, coef=coef)
