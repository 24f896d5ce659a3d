"""DanceGRPO: Unleashing GRPO on Visual Generation (arXiv 2505.07818)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part, supplies
from burnish.core.randomness import generator
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.method import Method, Option, chain, method, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper

DANCE_GRPO = Paper("dance-grpo", "2505.07818", "DanceGRPO: Unleashing GRPO on Visual Generation")


@supplies("claim:pg")
def some_steps(share: float) -> Part:
    """The term `pg` trains on a random share of the policy's tokens of each trace: ceil(share T) of T, in each step
    other ones.
    """

    def chosen(trace: Trace, group: Group, step: Step) -> Tensor:
        places = torch.nonzero(trace.by("policy"))[:, 0]
        dice = generator("some steps", step.clock.seed, step.clock.step, group.task.key, trace.index)
        kept = places[torch.from_numpy(dice.permutation(len(places)))[: math.ceil(share * len(places))]]
        mask = torch.zeros(len(trace), dtype=torch.bool)
        mask[kept] = True
        return mask

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            for trace in group.traces:
                trace.streams["claim:pg"] = chosen(trace, group, step)
        return groups

    return Part(
        name=f"some_steps({share:g})", call=call, reads=frozenset({"tokens:policy"}), writes=frozenset({"claim:pg"})
    )


@register(
    DANCE_GRPO,
    family="policy",
    summary="GRPO of a denoiser: one noise to begin with for each prompt, a part of the steps trained, no KL.",
    when="As `flow_grpo`, where samples that begin with other noise are too different to be compared.",
    example="burnish train dance_grpo --model tiny-flow --task paint:2",
    trial={"n": 3},
)
def dance_grpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 12,
    eps: opt.ClipRange = 1e-4,
    share: Annotated[float, Option("Share of the steps that are trained on.", above=0, at_most=1)] = 0.6,
    updates: opt.Updates = 1,
) -> Method:
    """A_i = (r_i - mean r) / std r;   L = mean over a share of the steps of -min(rho A, clip(rho, 1 - eps, 1 + eps) A)
    x_s = x + (v + eta^2 / (2 t) eps) (s - t) + eta sqrt(t - s) z,   eta = 0.3

    All samples of a prompt begin with the same noise and differ in z alone. Several rewards are added as advantages in
    the paper, which is `--reward a,b` with weights here. With share 1 and noise of their own (`--sampler flow_sde`) it
    is `flow_grpo` with beta 0. On a model of words it is `grpo` without KL on some of the tokens.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.group_relative(), credit.behaviour(), some_steps(share)),
        learn=learn.Learn(learn.pg_clip(eps, on=learn.CLAIMED), updates=updates),
        models=roles(policy=replace(trained(), sampler="dance_sde")),
    )
