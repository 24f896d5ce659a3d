"""Reason-RFT: Reinforcement Fine-Tuning for Visual Reasoning (arXiv 2503.20752)."""

from __future__ import annotations

import math
from functools import partial
from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, Phase, chain, frozen, roles
from burnish.methods import opt, register
from burnish.methods.compositions import from_share, until_share
from burnish.papers import Paper
from burnish.score.compared import Said, compared

REASON_RFT = Paper("reason-rft", "2503.20752", "Reason-RFT: Reinforcement Fine-Tuning for Visual Reasoning")


def tolerant(said: float, wanted: float, near: float, far: float) -> float:
    """1 up to a relative error of `near`, 0 from `far` on, between them (cos(pi z) + 1) / 2 with z linear in it."""
    error = abs(said - wanted) / max(abs(wanted), 1e-9)
    if error <= near:
        return 1.0
    return 0.0 if error >= far else (math.cos(math.pi * (error - near) / (far - near)) + 1) / 2


def _number(text: str) -> float | None:
    try:
        value = float(text.strip()[:40])
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def reward(said: Said, near: float, far: float) -> float | None:
    """The tolerance for references that are numbers; for others the verifier's score."""
    wanted, found = _number(said.reference), _number(said.answer)
    if wanted is None:
        return None
    return 0.0 if found is None else tolerant(found, wanted, near, far)


@register(
    REASON_RFT,
    family="hybrid",
    summary="Imitate reasoning first, then GRPO whose reward for numbers falls off with their error.",
    when="Questions about pictures with numbers for answers, where nearly right is worth something.",
    example="burnish train reason_rft --model tiny-omni --task shapes:4",
    trial={"n": 3},
)
def reason_rft(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.04,
    imitate: Annotated[float, Option("Share of the steps that imitate demonstrations.", at_least=0, at_most=1)] = 0.2,
    near: Annotated[float, Option("Relative error up to which a number is right.", at_least=0)] = 0.05,
    far: Annotated[float, Option("Relative error from which it is wrong.", at_least=0)] = 0.2,
) -> Method:
    """stage 1  L = mean over demonstrated tokens of -log pi
    stage 2  r = 1 if e <= near, 0 if e >= far, else (cos(pi z) + 1) / 2;   then GRPO
             z = (e - near) / (far - near);  e = |a - b| / |b|

    The reward is that of the released code (C); the bounds and the share of the first stage are ours (R). With imitate
    0 there is no first stage; with near = far a number is right or wrong. The reference is the model before both.
    """
    first = Phase(
        name="imitate",
        times=until_share(imitate),
        draw=draw.demos(task),
        rollout=rollout.given("demo"),
        learn=learn.Learn(learn.imitate(on="demo")),
    )
    second = Phase(
        times=from_share(imitate),
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=chain(score.verify(task), compared("reason_rft", partial(reward, near=near, far=far))),
        credit=chain(credit.group_relative(score="compared"), credit.behaviour(), credit.ref()),
        learn=learn.Learn(learn.pg_clip(eps, norm=learn.seq_mean), learn.kl_k3(coef=beta, norm=learn.seq_mean)),
    )
    return Method(models=roles(ref=frozen("policy")), phases=(first, second))
