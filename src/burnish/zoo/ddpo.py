"""Training Diffusion Models with Reinforcement Learning, DDPO (arXiv 2305.13301)."""

from __future__ import annotations

from dataclasses import replace

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, chain, method, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper

DDPO = Paper("ddpo", "2305.13301", "Training Diffusion Models with Reinforcement Learning")


@register(
    DDPO,
    family="policy",
    summary="PPO's clipped surrogate on the steps of a denoiser, rewards standardised for each prompt.",
    when="The policy draws (docs/denoisers.md) and the reward is of the finished picture.",
    example="burnish train ddpo --model tiny-flow --task paint:2",
    trial={"n": 3},
)
def ddpo(task: draw.Source, *, n: opt.GroupSize = 8, eps: opt.ClipRange = 1e-4, updates: opt.Updates = 1) -> Method:
    """A_i = (r_i - mean r) / std r;   L = mean over steps of -min(rho A, clip(rho, 1 - eps, 1 + eps) A)
    rho_k = p(x_{k+1} | x_k, c) / p_old(x_{k+1} | x_k, c),  p Gaussian, with DDIM's std (eta 1)

    A step of denoising is a token. The released code takes the log-density's mean over pixels, so that rho is the D-th
    root of the ratio, and clips at 1e-4 (C); `--reduce sum` is the paper's ratio. With one update a batch rho is 1, and
    this is REINFORCE with a baseline (the paper's DDPO_SF). Departure: mean and std are those of the n samples of a
    prompt in the batch, not of the last 16 or more that it had. On a model of words it is `grpo` without KL.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.group_relative(), credit.behaviour()),
        learn=learn.Learn(learn.pg_clip(eps), updates=updates),
        models=roles(policy=replace(trained(), sampler="ddim")),
    )
