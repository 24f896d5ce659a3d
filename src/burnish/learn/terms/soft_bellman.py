"""Terms of soft Bellman consistency, on whole paths."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.core.schedules import Schedule
from burnish.learn.maths.distillation import kl
from burnish.learn.maths.soft_bellman import path_policy_error, path_value_error, to_go
from burnish.learn.norms import Norm, seq_mean, unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.rows import row_mean


class _Actions:
    """The claimed tokens as actions: runs of one row with one number in stream "action"."""

    def __init__(self, live: Live) -> None:
        changes = (live.row[1:] != live.row[:-1]) | (live.action[1:] != live.action[:-1])
        begins = torch.cat([changes.new_ones(min(1, len(live.row))), changes])
        self.first = begins.nonzero()[:, 0]
        self._of = begins.cumsum(0) - 1
        self._row, self._rows = live.row[self.first], live.rows

    def sums(self, x: Tensor) -> Tensor:
        """[N] -> [A]: the sum over each action's tokens."""
        return x.new_zeros(len(self.first)).index_add(0, self._of, x)

    def to_go(self, x: Tensor) -> Tensor:
        """[A] -> [A]: the sum over this and all later actions of the reply."""
        return to_go(x, torch.bincount(self._row, minlength=self._rows).tolist())

    def row_means(self, x: Tensor) -> Tensor:
        """[A] -> [R]: the mean over each reply's actions; 0 for a row that has none."""
        count = torch.bincount(self._row, minlength=self._rows).clamp(min=1)
        return x.new_zeros(self._rows).index_add(0, self._row, x) / count


def path_value(
    beta: float, *, norm: Norm = unit_mean, trainee: str = "critic", on: Authors = "policy", name: str = "value"
) -> Term:
    """OREO's value loss, where actions begin: V against "returns" minus beta times the policy's log-ratio to go."""

    def loss(live: Live) -> Tensor:
        each = _Actions(live)
        ahead = each.to_go(each.sums(live.outputs["policy.logp"] - live.ref))
        value, returns = live.outputs["value"][each.first], live.returns[each.first]
        return each.row_means(path_value_error(value, returns, ahead, beta))

    return Term(
        name=name,
        on=on,
        unit="sequence",
        loss=loss,
        live=("value", "policy.logp"),
        streams=("ref", "returns", "action"),
        norm=norm,
        trainee=trainee,
    )


def path_policy(
    beta: float, *, norm: Norm = unit_mean, critic: str = "critic", on: Authors = "policy", name: str = "path"
) -> Term:
    """OREO's policy loss, with the critic's values as they are now; an action's log-ratio is the sum
    over its tokens.
    """

    def loss(live: Live) -> Tensor:
        each = _Actions(live)
        log_ratio = each.sums(live.logp - live.ref)
        value, returns = live.outputs[f"{critic}.value"][each.first], live.returns[each.first]
        live.note("entropy", row_mean(live, live.entropy))
        live.note("value", each.row_means(value))
        errors = path_policy_error(log_ratio, each.to_go(log_ratio.detach()), value, returns, beta)
        return each.row_means(errors)

    return Term(
        name=name,
        on=on,
        unit="sequence",
        loss=loss,
        live=("logp", "entropy", f"{critic}.value"),
        streams=("ref", "returns", "action"),
        norm=norm,
    )


def kl_exact(
    *, coef: Schedule, norm: Norm = seq_mean, ref: str = "ref", on: Authors = "policy", name: str = "kl"
) -> Term:
    """KL(pi || ref) over the whole vocabulary at every claimed token, not an estimate at the sampled one."""

    def loss(live: Live) -> Tensor:
        return kl(torch.log_softmax(live.logits, -1), torch.log_softmax(live.outputs[f"{ref}.logits"], -1))

    return Term(name=name, on=on, unit="token", loss=loss, live=("logits", f"{ref}.logits"), norm=norm, coef=coef)
