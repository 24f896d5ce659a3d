"""Enhancing Diffusion Models with Text-Encoder Reinforcement Learning, TexForce (arXiv 2311.15657)."""

from __future__ import annotations

from dataclasses import replace

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, chain, method, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper

TEXFORCE = Paper("texforce", "2311.15657", "Enhancing Diffusion Models with Text-Encoder Reinforcement Learning")


@register(
    TEXFORCE,
    family="policy",
    summary="DDPO that trains what reads the caption and leaves the denoiser as it is.",
    when="The denoiser draws well, and what it draws is not what the caption says.",
    example="burnish train texforce --model tiny-flow --task paint:2",
    trial={"n": 3},
)
def texforce(task: draw.Source, *, n: opt.GroupSize = 8, eps: opt.ClipRange = 1e-4, updates: opt.Updates = 1) -> Method:
    """A_i = (r_i - mean r) / std r;   L = mean over steps of -min(rho A, clip(rho, 1 - eps, 1 + eps) A), as in `ddpo`;
    its gradient goes to the weights of the text encoder alone.

    The paper trains LoRA adapters of the encoder (`--lora`); here its weights learn. With `--only text,picture` it is
    `ddpo`. A model of words has no other part, so all of it learns, as in `ddpo`.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.group_relative(), credit.behaviour()),
        learn=learn.Learn(learn.pg_clip(eps), updates=updates),
        models=roles(policy=replace(trained(), sampler="ddim", only="text")),
    )
