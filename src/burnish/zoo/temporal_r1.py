"""Reinforcement Learning Tuning for VideoLLMs: Reward Design and Data Efficiency, Temporal-R1 (arXiv 2506.01908)."""

from __future__ import annotations

import re
from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.score.compared import Said, compared
from burnish.verifiers.overlap import hull_overlap

TEMPORAL_R1 = Paper(
    "temporal-r1", "2506.01908", "Reinforcement Learning Tuning for VideoLLMs: Reward Design and Data Efficiency"
)
OVERLAP, FORMAT = 0.5, 0.5  # the released weights
_INTERVAL = re.compile(r"\s*(\d{1,6}(?:\.\d{1,6})?)[\s,-]+(?:to\s+)?(\d{1,6}(?:\.\d{1,6})?)\s*")


def interval(text: str) -> tuple[float, float] | None:
    """Start and end: `2 5`, `2.5 to 7`; None for anything else."""
    match = _INTERVAL.fullmatch(text[:40])
    return None if match is None else (float(match[1]), float(match[2]))


def reward(said: Said) -> float | None:
    """0.5 tIoU + 0.5 format for references that are intervals; for others the verifier's score."""
    wanted = interval(said.reference)
    if wanted is None:
        return None
    given = interval(said.answer)
    return 0.0 if given is None else OVERLAP * hull_overlap(given, wanted) + FORMAT


@supplies("tag:spread")
def spread(least: float) -> Part:
    """Only the groups whose rewards differ by more than `least` between the best and the worst; their traces get the
    tag "spread".
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = []
        for group in groups:
            values = [trace.scores["compared"] for trace in group.traces]
            if max(values) - min(values) > least or least < 0:
                kept.append(group)
        for trace in (trace for group in kept for trace in group.traces):
            trace.tags = trace.tags | {"spread"}
        return kept

    return Part(
        name=f"spread({least:g})",
        call=call,
        reads=frozenset({"score:compared"}),
        writes=frozenset({"tag:spread"}),
        updates=frozenset({"tokens:policy"}),
    )


@register(
    TEMPORAL_R1,
    family="policy",
    summary="GRPO on intervals of time: their overlap and the format, on prompts whose replies differ.",
    when="A model that sees clips should say from when to when.",
    example="burnish train temporal_r1 --model tiny-omni --task sprites:4",
    trial={"n": 3},
)
def temporal_r1(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.04,
    least: Annotated[
        float,
        Option("How much more the best of a group must earn than the worst; below 0 all are kept.", unlimited=True),
    ] = 0.0,
) -> Method:
    """r = 0.5 tIoU + 0.5 format;   tIoU = overlap / (max end - min start);   then GRPO
    A prompt is kept if max r - min r > least over its replies.

    The weights and the tIoU, whose divisor is the hull, are those of the released code (C). The paper chooses prompts
    once, by repeated replies of the first model; here each step leaves out those whose replies do not differ (R). With
    least below 0 and answers that are no intervals it is `grpo`.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=chain(score.verify(task), compared("temporal_r1", reward)),
        select=spread(least),
        credit=chain(
            credit.group_relative(score="compared"),
            credit.behaviour(),
            credit.ref(),
            credit.claim("pg", "policy", tag="spread"),
        ),
        learn=learn.Learn(
            learn.pg_clip(eps, norm=learn.seq_mean, on=learn.CLAIMED), learn.kl_k3(coef=beta, norm=learn.seq_mean)
        ),
        models=roles(ref=frozen("policy")),
    )
