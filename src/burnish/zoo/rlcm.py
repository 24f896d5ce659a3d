"""RL for Consistency Models: Faster Reward Guided Text-to-Image Generation, RLCM (arXiv 2404.03673)."""

from __future__ import annotations

from dataclasses import replace

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, chain, method, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper

RLCM = Paper("rlcm", "2404.03673", "RL for Consistency Models: Faster Reward Guided Text-to-Image Generation")


@register(
    RLCM,
    family="policy",
    summary="DDPO of a model that is sampled as consistency models are: to the picture and back to noise in few steps.",
    when="A picture must be drawn in two to eight steps.",
    example="burnish train rlcm --model tiny-flow --task paint:2 --denoise-steps 4",
    trial={"n": 3},
)
def rlcm(task: draw.Source, *, n: opt.GroupSize = 8, eps: opt.ClipRange = 1e-4, updates: opt.Updates = 1) -> Method:
    """A and L of `ddpo`;   x_s = (1 - s) x0(x_t, t) + s z,  z ~ N(0, 1)

    The step of multistep consistency sampling is the one of DDIM with the largest std that is possible, s: nothing is
    left of the estimated noise. With another std (`--sampler ddim`) it is `ddpo`. The number of steps is
    `--denoise-steps` (the paper: 8 or fewer).
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.group_relative(), credit.behaviour()),
        learn=learn.Learn(learn.pg_clip(eps), updates=updates),
        models=roles(policy=replace(trained(), sampler="consistency")),
    )
