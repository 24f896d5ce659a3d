"""Learning to Align, Aligning to Learn: A Unified Approach for Self-Optimized Alignment (arXiv 2508.07750).

The weights of GRAO: how far each sample is followed, and how far the demonstration is.
"""

from __future__ import annotations

import math
import statistics
from typing import Annotated

import torch

from burnish import draw, learn, rollout, score
from burnish.core.parts import Part, supplies
from burnish.core.schedules import Schedule
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.learn import maths
from burnish.learn.norms import Norm, token_mean
from burnish.learn.term import Authors, Live, Term
from burnish.method import Method, Option, Sampling, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

GRAO = Paper(
    "grao", "2508.07750", "Learning to Align, Aligning to Learn: A Unified Approach for Self-Optimized Alignment"
)


def pg_demonstrated(*, norm: Norm = token_mean, coef: Schedule = 1.0, on: Authors = "demo", name: str = "demo") -> Term:
    """-A log pi on stream "demo_adv": imitation as far as the demonstration is worth it, and away from
    it where A < 0.
    """

    def loss(live: Live) -> torch.Tensor:
        live.note("nll", -live.logp)
        return maths.reinforce(live.logp, live.demo_adv)

    return Term(name=name, on=on, unit="token", loss=loss, live=("logp",), streams=("demo_adv",), norm=norm, coef=coef)


def alignment_weights(
    rewards: list[float], demo: float, beta: float, lam: float, demo_counts: bool
) -> tuple[list[float], float]:
    """The factors of GRAO's log-likelihoods (arXiv 2508.07750), for G samples and one demonstration y.

        A = (R - mean) / std, over the samples, with y where demo_counts; std with 1/n; 0 where nothing differs
        J = 1/G sum_i [ A_i l(o_i) + beta A_y l(y) + lam A_i (l(o_i) - l(y)) ]
          = 1/G sum_i (1 + lam) A_i l(o_i)  +  (beta A_y - lam mean_i A_i) l(y)

    Returns ((1 + lam) A_i for each sample, beta A_y - lam mean_i A_i). Where y does not count, mean_i A_i = 0.
    """
    compared = [*rewards, demo] if demo_counts else rewards
    mean, std = statistics.fmean(compared), statistics.pstdev(compared)
    if std == 0:
        return [0.0] * len(rewards), 0.0
    found = [(reward - mean) / std for reward in rewards]
    return [(1 + lam) * a for a in found], beta * (demo - mean) / std - lam * statistics.fmean(found)


@supplies("stream:adv", "stream:demo_adv")
def aligned(*, beta: float, lam: float, demo_counts: bool, demo: str = "demo", score: str = "reward") -> Part:
    """`alignment_weights` as streams: "adv" on the samples, "demo_adv" on the group's one trace with the tag `demo`."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            samples = [trace for trace in group.traces if demo not in trace.tags]
            (shown,) = (trace for trace in group.traces if demo in trace.tags)
            rewards = [trace.scores[score] for trace in samples]
            mine, pull = alignment_weights(rewards, shown.scores[score], beta, lam, demo_counts)
            for trace, weight in zip([*samples, shown], [*mine, math.nan], strict=True):
                trace.streams["adv"] = torch.full((len(trace),), weight)
                trace.streams["demo_adv"] = torch.full((len(trace),), pull if trace is shown else math.nan)
            step.notes.add("demo_weight", pull)
        return groups

    return Part(
        name="aligned",
        call=call,
        reads=frozenset({f"score:{score}", f"tag:{demo}"}),
        writes=frozenset({"stream:adv", "stream:demo_adv"}),
    )


@register(
    GRAO,
    family="hybrid",
    summary="Follow good samples, and the demonstration as long as it is better than they are.",
    when="One demonstration a prompt, of unclear quality: it should teach only while it beats the model's own replies.",
)
def grao(
    task: draw.Source,
    *,
    n: opt.Replies = 8,
    beta: opt.ImitationCoef = 0.5,
    lam: Annotated[float, Option("Weight of the contrast.", at_least=0)] = 0.6,
    demo_counts: Annotated[bool, Option("Whether the demonstration counts in the mean and the deviation.")] = True,
) -> Method:
    """GRAO: exploration, imitation and the contrast between them, all weighed by relative advantages.

    A = (R - mean) / std over the n samples and the demonstration y (std with 1/n);  l = mean log pi of a reply's tokens
    J = 1/n sum_i [ A_i l(o_i) + beta A_y l(y) + lam A_i (l(o_i) - l(y)) ],   L = -J, averaged over prompts

    There is no ratio, clip or KL. As printed, mean and std run over the samples alone (demo_counts = False), which
    leaves A_y without a value where all samples score the same; the text speaks of one group, which is the default
    here. A group in which nothing differs has weight 0. All log-probs are those at the sampling temperature.
    """
    return method(
        draw=draw.demos(task),
        rollout=rollout.join(rollout.sample(n), rollout.given("demo")),
        score=score.verify(task),
        credit=aligned(beta=beta, lam=lam, demo_counts=demo_counts),
        learn=learn.Learn(
            learn.pg_reinforce(norm=learn.seq_mean),
            pg_demonstrated(norm=learn.seq_mean),
            logp_temperature="run",
        ),
        models=roles(),
        sampling=Sampling(0.7),
    )
