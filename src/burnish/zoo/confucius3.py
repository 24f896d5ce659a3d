"""Confucius3-Math: A Lightweight High-Performance Reasoning LLM for Chinese K-12 Mathematics Learning (arXiv
2506.18330).

Groups that a batch had no room for, kept for the next one.

On which side of a target the policy's entropy is.

Advantages weighed by how hard a prompt is for the policy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import Draw, Part, Rollout, supplies
from burnish.core.schedules import Schedule
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.credit.baselines import spread
from burnish.learn.norms import Norm, token_mean
from burnish.learn.term import Authors, Live, Term
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.select.refill import other_moment
from burnish.select.remember import Store

CONFUCIUS3 = Paper(
    "confucius3-math",
    "2506.18330",
    "Confucius3-Math: A Lightweight High-Performance Reasoning LLM for Chinese K-12 Mathematics Learning",
)

METRICS = (("recovered", "What was kept", "groups of the last step that had no room in its batch"),)


def entropy_towards(*, coef: Schedule, norm: Norm = token_mean, on: Authors = "policy", name: str = "entropy") -> Term:
    """The entropy times stream "side": its gradient is that of |H - target|, H the mean over the batch."""

    def loss(live: Live) -> Tensor:
        return live.side.to(live.entropy) * live.entropy

    return Term(name=name, on=on, unit="token", loss=loss, live=("entropy",), streams=("side",), norm=norm, coef=coef)


def recovered(keep: Part, draw: Draw, rollout: Rollout, score: Part, times: int, store: Store) -> Part:
    """Recent sample recovery (Confucius3-Math, arXiv 2506.18330, section 6.3): dynamic sampling by whole batches.

    The batch starts with the groups that the last one had no room for (`store`), then takes what the filter `keep`
    leaves of the step's own groups; while it is not full, whole batches are drawn, sampled, scored and filtered, up to
    `times` times. The first `prompts` groups are trained on, the others are stored. Their replies are then one or more
    steps old; whether a ratio accounts for that is the method's choice, and the paper's is not to.

    What is drawn in the k-th refill is a function of the seed, the step and k, as in `refilled`.
    """
    if times < 0:
        raise ValueError(f"{times} refills; it must be 0 or more")

    def call(groups: list[Group], step: Step) -> list[Group]:
        wanted, old = step.settings.prompts, store.groups
        kept = [*old, *step.through(keep, groups)]
        for k in range(times):
            if len(kept) >= wanted:
                break
            again = replace(step, clock=other_moment(step.clock, k))
            fresh = score.call(rollout.call(draw.call(again), again), again)
            step.notes.count("refilled", len(fresh))
            kept += again.through(keep, fresh)
        store.groups = []
        store.add(kept[wanted:])
        step.notes.count("recovered", len(old))
        return kept[:wanted]

    state = (*keep.state, *draw.state, *rollout.state, *score.state, store)
    return replace(keep, name=f"recovered({keep.name}, {times})", call=call, parts=(), state=state)


@supplies("stream:side")
def entropy_side(target: float, *, author: str = "policy") -> Part:
    """sign(H - target) on every token, as stream "side"; H is the mean of stream "entropy" over the batch's tokens.

    It is a number of the whole batch, so it is computed before the first backward pass, and no micro-batch changes it.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        own = [trace.streams["entropy"][trace.by(author)] for trace in traces]
        tokens = sum(map(len, own))
        mean = sum(float(one.double().sum()) for one in own) / tokens if tokens else target
        side = float((mean > target) - (mean < target))
        for trace in traces:
            trace.streams["side"] = torch.full((len(trace),), side)
        return groups

    return Part(
        name=f"entropy_side({target:g})",
        call=call,
        reads=frozenset({"stream:entropy", f"tokens:{author}"}),
        writes=frozenset({"stream:side"}),
    )


@supplies("stream:adv")
def by_hardness(alpha: float = -0.256, offset: float = 1.256, *, score: str = "reward") -> Part:
    """Policy-specific hardness weighting (Confucius3-Math, arXiv 2506.18330, Eq. 2 and 3).

        R_i = 2 score_i - 1,   mu = mean R over the replies to the prompt,   A_i = (R_i - mu) (alpha mu + offset)

    With the paper's constants a prompt that is always solved (mu = 1) weighs 1, one that never is (mu = -1) 1.512.
    alpha = 0, offset = 1 is Dr. GRPO's advantage for rewards of -1 and 1.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            rewards = [2 * trace.scores[score] - 1 for trace in group.traces]
            mean = sum(rewards) / len(rewards)
            for trace, reward in zip(group.traces, rewards, strict=True):
                spread(trace, (reward - mean) * (alpha * mean + offset))
        return groups

    return Part(
        name=f"by_hardness({alpha:g}, {offset:g})",
        call=call,
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({"stream:adv"}),
    )


Refills = Annotated[int, Option("How often a step fills up its batch after the filter.", at_least=0)]


@register(
    CONFUCIUS3,
    family="policy",
    summary="GRPO with a penalty for the distance of the entropy from a target, on either side.",
    when="Entropy runs away upwards (mixed languages) or collapses.",
)
def targeted_entropy(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.04,
    target: Annotated[float, Option("The entropy to hold, in nats.", at_least=0)] = 0.55,
    coef: Annotated[float, Option("Weight of the distance.", at_least=0)] = 0.001,
) -> Method:
    """Targeted entropy regularisation (Confucius3-Math, section 6.1), the first stage of its RL.

    L = L_GRPO + coef |H - target|,   H = mean over the tokens of the batch of the policy's entropy

    The gradient of |H - target| is sign(H - target) grad H; the sign is that of the whole batch before the update. coef
    = 0 is GRPO. target 0.55 and coef 0.001 are the paper's.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(
            credit.group_relative(),
            credit.behaviour(),
            credit.ref(),
            credit.streams("policy", "policy", entropy="entropy"),
            entropy_side(target),
        ),
        learn=learn.Learn(
            learn.pg_clip(eps, norm=learn.seq_mean),
            learn.kl_k3(coef=beta, norm=learn.seq_mean),
            entropy_towards(coef=coef),
        ),
        models=roles(ref=frozen("policy")),
    )


@register(
    CONFUCIUS3,
    family="policy",
    summary="DAPO with advantages weighed by hardness, whose surplus groups are used in the next batch.",
    when="Dynamic sampling wastes replies, and hard prompts should count more.",
)
def confucius3(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps_low: opt.ClipLow = 0.2,
    eps_high: opt.ClipHigh = 0.28,
    alpha: Annotated[
        float, Option("How the weight of a prompt changes with its mean score.", at_least=-1, at_most=1)
    ] = -0.256,
    offset: Annotated[float, Option("The weight of a prompt of which half is right.", above=0)] = 1.256,
    refills: Refills = 3,
) -> Method:
    """DAPO with recent sample recovery and policy-specific hardness weighting (Confucius3-Math, sections 6.2 and 6.3).

    R_i = 1 or -1,  mu = mean R,  A_i = (R_i - mu)(alpha mu + offset),  in groups with 0 < right < n
    L = sum over tokens of -min(rho A, clip(rho, 1-eps_low, 1+eps_high) A) / (replies x longest reply)

    A batch begins with the mixed groups that the last one had no room for; whole batches are sampled until it is full
    (at most `refills` more; the paper has no limit). alpha and offset are the paper's: a prompt that is never solved
    weighs 1.512, one that always is 1. pi_old is computed by the trainer before the update, so that recovered replies
    are treated as fresh ones: the paper found no use in importance weights. The clip is DAPO's; the paper prints none.
    """
    drawn, sampled = draw.prompts(task), rollout.sample(n)
    scored = score.verify(task)
    store = select.Store("recent", 10_000)
    return method(
        draw=drawn,
        rollout=sampled,
        score=scored,
        select=recovered(select.mixed(), drawn, sampled, scored, refills, store),
        credit=chain(by_hardness(alpha, offset), credit.old(), credit.claim("pg", "policy", tag="mixed")),
        learn=learn.Learn(learn.pg_clip(eps_low, eps_high, norm=learn.constant(), on=learn.CLAIMED)),
        models=roles(),
    )
