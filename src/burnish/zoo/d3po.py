"""Using Human Feedback to Fine-tune Diffusion Models without Any Reward Model, D3PO (arXiv 2311.13231)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Method, Option, frozen, method, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper

D3PO = Paper("d3po", "2311.13231", "Using Human Feedback to Fine-tune Diffusion Models without Any Reward Model")


def step_pairs(beta: float, eps: float) -> learn.Term:
    """DPO between step k of the better chain and step k of the worse one, the mean over steps; one number a pair.

    Of chains of different lengths the steps that both have are compared.
    """

    def loss(live: learn.Live) -> Tensor:
        ratio = (live.logp - live.ref).exp()
        held = ratio.clamp(1 - eps, 1 + eps).log()
        rows = [held[live.row == row] for row in range(live.rows)]
        each = []
        for better, worse in live.pairs.tolist():
            k = min(len(rows[better]), len(rows[worse]))
            each.append(-F.logsigmoid(beta * (rows[better][:k] - rows[worse][:k])).mean())
        return torch.stack(each) if each else held.new_zeros(0)

    return learn.Term(name="pair", unit="pair", loss=loss, live=("logp",), streams=("ref",), norm=learn.unit_mean)


@register(
    D3PO,
    family="preference",
    summary="DPO on each step of a denoiser: every step of the better picture is preferred to that of the worse one.",
    when="Pictures are compared and not scored, and the policy draws them itself.",
    example="burnish train d3po --model tiny-flow --task paint:2",
    trial={"n": 3},
)
def d3po(
    task: draw.Source,
    *,
    n: opt.GroupSize = 2,
    beta: opt.Beta = 0.1,
    eps: Annotated[
        float, Option("How far a step's ratio to the reference may move before it is clipped.", above=0)
    ] = 0.1,
) -> Method:
    """L = mean over pairs and steps k of -log sigmoid( beta [ log clip(rho_k^w) - log clip(rho_k^l) ] )
    rho_k = p(x_{k+1} | x_k, c) / p_ref(x_{k+1} | x_k, c),  clip to 1 - eps .. 1 + eps

    The paper's people compare pictures; here the task's score does (the best against the worst of n). Constants are
    those of the released code, which draws with 20 steps of DDIM, eta 1 (C). With one step and no clip it is
    `online_dpo`.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        select=select.best_vs_worst(),
        credit=credit.ref(),
        learn=learn.Learn(step_pairs(beta, eps)),
        models=roles(policy=replace(trained(), sampler="ddim"), ref=replace(frozen("policy"), sampler="ddim")),
    )
