"""Tapered Off-Policy REINFORCE: Stable and efficient reinforcement learning for LLMs (arXiv 2503.14286)."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part, per_trace, supplies
from burnish.core.schedules import Schedule
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.learn.maths import reinforce
from burnish.learn.norms import Norm, seq_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.rows import note_drift, row_mean
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

TOPR = Paper("topr", "2503.14286", "Tapered Off-Policy REINFORCE: Stable and efficient reinforcement learning for LLMs")


def taper(log_ratio: Tensor, reward: Tensor) -> Tensor:
    """TOPR's weight of a whole reply (arXiv 2503.14286): 1 where R >= 0, [pi / mu]_0^1 where R < 0. Shapes [R], no
    gradient.

    log_ratio = log pi(y) - log mu(y), summed over the reply. On-policy it is 1: REINFORCE.
    """
    assert log_ratio.shape == reward.shape
    tapered = log_ratio.detach().clamp(max=0.0).exp()
    return torch.where(reward < 0, tapered, torch.ones_like(tapered))


@supplies("stream:adv")
def signed(baseline: float = 0.0, score: str = "reward") -> Part:
    """A = 2 score - 1 - baseline: +1 for right and -1 for wrong, moved by a constant (TOPR, arXiv 2503.14286)."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.streams["adv"] = torch.full((len(trace),), 2 * trace.scores[score] - 1 - baseline)

    return per_trace(write, name="signed", reads=frozenset({f"score:{score}"}), writes=frozenset({"stream:adv"}))


def pg_tapered(*, norm: Norm = seq_mean, coef: Schedule = 1.0, on: Authors = "policy", name: str = "pg") -> Term:
    """TOPR: REINFORCE in which replies of negative "adv" count by their whole ratio to "old", at most 1."""

    def loss(live: Live) -> Tensor:
        weight = taper(live.per_row(live.logp - live.old), row_mean(live, live.adv).to(live.logp.dtype))
        live.note("taper", weight[live.row])
        note_drift(live)
        return weight[live.row] * reinforce(live.logp, live.adv)

    return Term(
        name=name,
        on=on,
        unit="token",
        loss=loss,
        live=("logp", "entropy"),
        streams=("adv", "old"),
        norm=norm,
        coef=coef,
    )


@register(
    TOPR,
    family="policy",
    summary="REINFORCE in which bad replies count less once the policy has left them.",
    when="You train on replies of an older policy, good and bad, and the bad ones blow up a plain importance weight.",
)
def topr(
    task: draw.Source,
    *,
    n: opt.Replies = 8,
    baseline: Annotated[float, Option("Taken from every reward; a negative one weighs right replies more.")] = 0.0,
    minibatches: opt.Minibatches = 4,
) -> Method:
    """Tapered off-policy REINFORCE.

    R = 2 score - 1 - baseline;  w = 1 where R >= 0,  w = sg[min(pi(y) / mu(y), 1)] of the whole reply where R < 0
    L = mean over replies of -w R log pi(y) / |y|;  no KL

    mu is the policy that sampled. The paper's datasets are sampled once and passed over once, with 16 or 32 replies a
    prompt; here each batch is such a dataset, passed over once in a few updates.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(signed(baseline), credit.behaviour()),
        learn=learn.Learn(pg_tapered(norm=learn.seq_mean), minibatches=minibatches),
        models=roles(),
    )
