"""Terms of critics that are language models: Q(s, .) is their logits minus those of their start (ILQL)."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.core.schedules import Schedule
from burnish.learn.maths import token_values as maths
from burnish.learn.maths.distillation import kl
from burnish.learn.maths.soft_q import next_values
from burnish.learn.norms import Norm, token_mean
from burnish.learn.term import Authors, Live, Term


def q_temporal(
    gamma: float,
    *,
    trainee: str,
    start: str = "ref",
    value: str = "value",
    norm: Norm = token_mean,
    on: Authors = "policy",
    name: str = "q",
) -> Term:
    """(Q(s_t, a_t) - r_t - gamma V(s_{t+1}))^2 / 2. The next state is that of the row's next claimed token; after the
    last, V is 0.
    """

    def loss(live: Live) -> Tensor:
        estimate = maths.of_token(maths.q_values(live.logits, live.outputs[f"{start}.logits"]), live.token)
        ahead = next_values(live.outputs[f"{value}.value"], live.row)
        live.note("estimate", estimate)
        return maths.half_squared_error(estimate, live.reward.to(estimate.dtype) + gamma * ahead.to(estimate.dtype))

    return Term(
        name=name,
        on=on,
        unit="token",
        loss=loss,
        live=("logits", f"{start}.logits", f"{value}.value"),
        streams=("token", "reward"),
        norm=norm,
        trainee=trainee,
    )


def q_return(
    *, trainee: str, start: str = "ref", norm: Norm = token_mean, on: Authors = "policy", name: str = "q"
) -> Term:
    """(Q(s_t, a_t) - R_t)^2 / 2, R the return to go in stream "returns"."""

    def loss(live: Live) -> Tensor:
        estimate = maths.of_token(maths.q_values(live.logits, live.outputs[f"{start}.logits"]), live.token)
        live.note("estimate", estimate)
        return maths.half_squared_error(estimate, live.returns.to(estimate.dtype))

    return Term(
        name=name,
        on=on,
        unit="token",
        loss=loss,
        live=("logits", f"{start}.logits"),
        streams=("token", "returns"),
        norm=norm,
        trainee=trainee,
    )


def q_recorded(
    *,
    coef: Schedule,
    trainee: str,
    start: str = "ref",
    norm: Norm = token_mean,
    on: Authors = "policy",
    name: str = "cql",
) -> Term:
    """-log softmax(Q)(a_t): the CQL term of ILQL, the cross-entropy of Q as logits on the recorded token."""

    def loss(live: Live) -> Tensor:
        values = maths.q_values(live.logits, live.outputs[f"{start}.logits"])
        return -maths.of_token(torch.log_softmax(values, -1), live.token)

    return Term(
        name=name,
        on=on,
        unit="token",
        loss=loss,
        live=("logits", f"{start}.logits"),
        streams=("token",),
        norm=norm,
        trainee=trainee,
        coef=coef,
    )


def v_expectile(
    tau: float,
    critics: tuple[str, ...],
    *,
    trainee: str = "value",
    start: str = "ref",
    norm: Norm = token_mean,
    on: Authors = "policy",
    name: str = "v",
) -> Term:
    """w (V(s_t) - min_i Q_i(s_t, a_t))^2 / 2, w = tau where V is too small, else 1 - tau."""

    def loss(live: Live) -> Tensor:
        origin = live.outputs[f"{start}.logits"]
        scores = [maths.q_values(live.outputs[f"{critic}.logits"], origin) for critic in critics]
        estimates = [maths.of_token(of_critic, live.token) for of_critic in scores]
        value = live.outputs["value"]
        live.note("estimate", value)
        return maths.expectile_error(value, maths.smallest(estimates).to(value.dtype), tau)

    return Term(
        name=name,
        on=on,
        unit="token",
        loss=loss,
        live=("value", f"{start}.logits", *(f"{one}.logits" for one in critics)),
        streams=("token",),
        norm=norm,
        trainee=trainee,
    )


def imitate_steered(
    beta: float,
    critics: tuple[str, ...],
    *,
    start: str = "ref",
    norm: Norm = token_mean,
    on: Authors = "policy",
    name: str = "extract",
) -> Term:
    """KL(pi^ || pi) over the whole vocabulary, pi^ = start(a|s) exp(beta min_i Q_i(s, a)) / Z: the policy that the
    critics steer.
    """

    def loss(live: Live) -> Tensor:
        origin = live.outputs[f"{start}.logits"]
        values = maths.smallest([maths.q_values(live.outputs[f"{one}.logits"], origin) for one in critics])
        return kl(maths.steered(origin, values, beta), torch.log_softmax(live.logits, -1))

    return Term(
        name=name,
        on=on,
        unit="token",
        loss=loss,
        live=("logits", f"{start}.logits", *(f"{one}.logits" for one in critics)),
        norm=norm,
    )
