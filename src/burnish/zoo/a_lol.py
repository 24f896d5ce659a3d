"""Improving Language Models with Advantage-based Offline Policy Gradients (arXiv 2305.14718).

A batch drawn again, the better the likelier.

Scores relative to a critic's value.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, score
from burnish.core import randomness
from burnish.core.parts import Part, supplies
from burnish.core.schedules import Schedule, after
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.learn.norms import unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.method import Method, Option, Phase, chain, frozen, roles, trained
from burnish.methods import Arguments, opt, register, variant
from burnish.papers import Paper

A_LOL = Paper("a-lol", "2305.14718", "Improving Language Models with Advantage-based Offline Policy Gradients")


def held_ratio(logratio: Tensor, eps: float) -> Tensor:
    """sg[clip(exp(logratio), 1 - eps, 1 + eps)]: A-LoL's importance weight (arXiv 2305.14718), without gradient.

    A plain clamp: unlike PPO's minimum it never takes the gradient of log pi away. One number for each entry, a
    reply's log-ratio or a token's. eps = 0 is 1 everywhere.
    """
    return logratio.detach().exp().clamp(1 - eps, 1 + eps)


def pg_sequence_ratio(eps: float, *, coef: Schedule = 1.0, on: Authors = "policy", name: str = "pg") -> Term:
    """-w A log pi(y) for each reply, w the held, clipped ratio pi/ref of the whole reply (A-LoL); A is stream "adv"."""

    def loss(live: Live) -> torch.Tensor:
        weight = held_ratio(live.per_row(live.logp - live.ref), eps)
        live.note("ratio", weight)
        return -weight * live.per_row(live.adv * live.logp)

    return Term(
        name=name, on=on, unit="sequence", loss=loss, live=("logp",), streams=("adv", "ref"), norm=unit_mean, coef=coef
    )


def pg_token_ratio(eps: float, *, coef: Schedule = 1.0, on: Authors = "policy", name: str = "pg") -> Term:
    """-A sum_t w_t log pi(y_t) for each reply, w_t the held, clipped ratio pi/ref of the token (A-LoL seq.)."""

    def loss(live: Live) -> torch.Tensor:
        weight = held_ratio(live.logp - live.ref, eps)
        return live.per_row(-live.adv * weight * live.logp)

    return Term(
        name=name, on=on, unit="sequence", loss=loss, live=("logp",), streams=("adv", "ref"), norm=unit_mean, coef=coef
    )


@supplies("tag:drawn")
def prioritised(score: str = "advantage") -> Part:
    """As many traces as there are tasks, drawn with replacement in proportion to max(score, 0), over the whole batch.

    What scores 0 or less is never drawn. Each drawn trace is a group of its own and carries the tag "drawn".
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        pool = [(group.task, trace) for group in groups for trace in group.traces if trace.scores[score] > 0]
        seen = sum(len(group.traces) for group in groups)
        step.notes.add(f"dropped/no_{score}", seen - len(pool), seen)
        if not pool:
            return []
        clock = step.clock
        rng = randomness.rng(clock.seed, "prioritised", clock.step, clock.tick)
        drawn = rng.choices(pool, [trace.scores[score] for _, trace in pool], k=len(groups))
        return [
            Group(task, [replace(trace, streams=dict(trace.streams), tags=trace.tags | {"drawn"})])
            for task, trace in drawn
        ]

    return Part(
        name=f"prioritised({score})",
        call=call,
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({"tag:drawn"}),
    )


@supplies("score:advantage")
def above_value(critic: str = "critic", *, score: str = "reward", author: str = "demo") -> Part:
    """scores["advantage"] = score - V(x), the critic's value of the prompt (before the author's first token)."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        firsts = [int(trace.by(author).nonzero()[0]) for trace in traces]
        masks = [torch.arange(len(trace)) == first for trace, first in zip(traces, firsts, strict=True)]
        outputs = step.models[critic].streams(traces, masks, {"value"}, step.settings.token_budget)
        for trace, first, output in zip(traces, firsts, outputs, strict=True):
            trace.scores["advantage"] = trace.scores[score] - float(output["value"][first])
        return groups

    return Part(
        name=f"above_value({critic})",
        call=call,
        reads=frozenset({f"score:{score}", f"tokens:{author}", f"model:{critic}.value"}),
        writes=frozenset({"score:advantage"}),
    )


_ReferenceReplies = Annotated[
    int, Option("Replies of the reference for each prompt, while the critic learns.", at_least=1)
]
_ValueSteps = Annotated[int, Option("Steps in which only the critic learns.", at_least=0)]


def leftover_lunch(
    task: draw.Source,
    *,
    n: _ReferenceReplies = 4,
    term: learn.Term,
    value_steps: _ValueSteps = 20,
    critic_lr: opt.CriticLR = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """A-LoL with any term: the critic learns what the reference earns, then the policy learns from what beats it."""
    value = Phase(
        name="value",
        times=lambda clock: int(clock.step <= value_steps),
        draw=draw.prompts(task),
        rollout=rollout.sample(n, who="ref"),
        score=score.scoring(task, reward_model, author="ref"),
        credit=chain(credit.shared("reward", "returns"), credit.claim("value", "ref", positions="first")),
        learn=learn.Learn(learn.value_mse("value", None, "returns", on=learn.CLAIMED)),
    )
    policy = Phase(
        name="policy",
        times=after(value_steps),
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=chain(score.scoring(task, reward_model, author="demo"), above_value("critic", author="demo")),
        select=prioritised("advantage"),
        credit=chain(
            credit.shared("advantage", "adv"),
            *([credit.ref()] if "ref" in term.streams else []),
            credit.claim("pg", "demo", tag="drawn"),
        ),
        learn=learn.Learn(term),
    )
    models = roles(ref=frozen("policy"), critic=trained(outputs=1, lr=critic_lr), **score.rm_role(reward_model))
    return Method(models=models, phases=(value, policy))


@register(
    A_LOL,
    family="policy",
    summary="Offline: learn from given replies that beat what the reference would score.",
    when="You have scored replies of any origin and no way to sample during training.",
    trial={"n": 2, "value_steps": 0},
)
@variant(leftover_lunch)
def a_lol(*, eps: opt.ClipRange = 0.9) -> Arguments:
    """Advantage leftover lunch: an offline policy gradient in which a whole reply is one action.

    A = max(r(x, y) - V_ref(x), 0);   w = sg clip( pi(y|x)/ref(y|x), 1 - eps, 1 + eps )
    L = mean over replies of -A w sum_t log pi(y_t);   replies drawn with chance ~ A
    V_ref(x) is regressed to the scores of the reference's own replies to x, in the first steps

    The replies are the task's chosen and rejected ones. Departures: the critic is a copy of the model with a linear
    head that is trained whole, on training prompts (the released code: an attention layer over the frozen
    reference, on the validation set); replies are drawn anew within each batch, not over the whole data set. The KL
    variant is `a_lol_ref_free` with A - beta. eps = 0.9 is the paper's. The critic learns for the last time in the
    policy's first step.
    """
    return {"term": pg_sequence_ratio(eps, on=learn.CLAIMED)}


@register(
    A_LOL,
    family="policy",
    summary="A-LoL with a ratio for each token.",
    when="As `a_lol`, for long replies, whose whole ratio is too noisy.",
    trial={"n": 2, "value_steps": 0},
)
@variant(leftover_lunch)
def a_lol_seq(*, eps: opt.ClipRange = 0.9) -> Arguments:
    """A-LoL seq.: the importance weight is the token's, w_t = sg clip( pi(y_t)/ref(y_t), 1 - eps, 1 + eps ).

    L = mean over replies of -A sum_t w_t log pi(y_t)

    The rest is as in `a_lol`.
    """
    return {"term": pg_token_ratio(eps, on=learn.CLAIMED)}


@register(
    A_LOL,
    family="policy",
    summary="A-LoL without the ratio: advantage-weighted imitation.",
    when="As `a_lol`, without the memory for a reference.",
    trial={"n": 2, "value_steps": 0},
)
@variant(leftover_lunch)
def a_lol_ref_free() -> Arguments:
    """A-LoL ref. free: the importance weight is 1.

    L = mean over replies of -A sum_t log pi(y_t)

    The rest is as in `a_lol`.
    """
    return {"term": learn.pg_reinforce(on=learn.CLAIMED)}
