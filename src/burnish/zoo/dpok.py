"""DPOK: Reinforcement Learning for Fine-tuning Text-to-Image Diffusion Models (arXiv 2305.16381)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, chain, frozen, method, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper

DPOK = Paper("dpok", "2305.16381", "DPOK: Reinforcement Learning for Fine-tuning Text-to-Image Diffusion Models")


@register(
    DPOK,
    family="policy",
    summary="Policy gradient of a denoiser with the KL of each step to the pre-trained model.",
    when="As `ddpo`, where the policy is to stay near the model that it was.",
    example="burnish train dpok --model tiny-flow --task paint:2",
    trial={"n": 3},
)
def dpok(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    alpha: Annotated[float, Option("Weight of the reward.", above=0)] = 10.0,
    beta: opt.KLCoef = 0.01,
    eps: opt.ClipRange = 1e-4,
    updates: opt.Updates = 1,
) -> Method:
    """L = mean over steps of [ -alpha min(rho A, clip(rho) A) + beta |mu - mu_pre|^2 / (2 std^2) ]
    A_i = r_i - mean r

    The KL is that of the steps, whose sum bounds the KL of the pictures (the paper's lemma). Departures: the baseline
    is the mean of the prompt's n samples, not a learned value of (x_t, t, c); alpha and beta are from memory of the
    released settings (S). With beta 0 and rewards divided by their spread it is `ddpo`.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.group_relative(std=False), credit.behaviour()),
        learn=learn.Learn(learn.pg_clip(eps, coef=alpha), learn.kl_steps(coef=beta), updates=updates),
        models=roles(policy=replace(trained(), sampler="ddim"), ref=replace(frozen("policy"), sampler="ddim")),
    )
