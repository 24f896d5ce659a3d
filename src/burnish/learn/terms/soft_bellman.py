"""Terms of soft Bellman consistency, on whole paths."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.learn.maths.distillation import kl
from burnish.learn.maths.soft_bellman import path_policy_error, path_value_error, to_go
from burnish.learn.norms import Norm, seq_mean
from burnish.learn.term import Live, Term
from burnish.schedules import Schedule


def _lengths(live: Live) -> list[int]:
    return torch.bincount(live.row, minlength=live.rows).tolist()


def path_value(beta: float, *, norm: Norm = seq_mean, trainee: str = "critic", name: str = "value") -> Term:
    """OREO's value loss: V against "returns" minus beta times the policy's log-ratio to go (as the policy is now)."""

    def loss(live: Live) -> Tensor:
        log_ratio = live.outputs["policy.logp"] - live.ref
        return path_value_error(live.outputs["value"], live.returns, to_go(log_ratio, _lengths(live)), beta)

    return Term(
        name=name,
        unit="token",
        loss=loss,
        live=("value", "policy.logp"),
        streams=("ref", "returns"),
        norm=norm,
        trainee=trainee,
    )


def path_policy(beta: float, *, norm: Norm = seq_mean, critic: str = "critic", name: str = "path") -> Term:
    """OREO's policy loss, with the critic's values as they are now."""

    def loss(live: Live) -> Tensor:
        log_ratio = live.logp - live.ref
        summed = to_go(log_ratio.detach(), _lengths(live))
        value = live.outputs[f"{critic}.value"]
        live.note("entropy", live.entropy)
        live.note("value", value)
        return path_policy_error(log_ratio, summed, value, live.returns, beta)

    return Term(
        name=name,
        unit="token",
        loss=loss,
        live=("logp", "entropy", f"{critic}.value"),
        streams=("ref", "returns"),
        norm=norm,
    )


def kl_exact(*, coef: Schedule, norm: Norm = seq_mean, ref: str = "ref", name: str = "kl") -> Term:
    """KL(pi || ref) over the whole vocabulary at every claimed token, not an estimate at the sampled one."""

    def loss(live: Live) -> Tensor:
        return kl(torch.log_softmax(live.logits, -1), torch.log_softmax(live.outputs[f"{ref}.logits"], -1))

    return Term(name=name, unit="token", loss=loss, live=("logits", f"{ref}.logits"), norm=norm, coef=coef)
