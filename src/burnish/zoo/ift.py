"""Intuitive Fine-Tuning: Towards Simplifying Alignment into a Single Process (arXiv 2405.11870)."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn

from burnish import credit, draw, learn, rollout
from burnish.core.types import Trace
from burnish.learn.learn import Embed
from burnish.method import Method, Option, method, roles
from burnish.methods import register
from burnish.papers import Paper

IFT = Paper("ift", "2405.11870", "Intuitive Fine-Tuning: Towards Simplifying Alignment into a Single Process")


def own_guess(share: float, author: str = "demo") -> Embed:
    """IFT's temporal residual (arXiv 2405.11870): (1 - share) E[y_i] + share E[argmax_i] at the author's tokens.

    argmax_i is the token that the policy found likeliest there (stream "greedy"). The table is held: no gradient
    reaches it through the inputs.
    """

    def call(embeddings: Tensor, trace: Trace, table: nn.Module) -> Tensor:
        mask = trace.by(author)
        guessed = table(trace.streams["greedy"].nan_to_num(0).long().to(embeddings.device))
        mixed = torch.lerp(embeddings, guessed, share)
        return torch.where(mask[:, None].to(embeddings.device), mixed, embeddings).detach()

    return Embed(f"own_guess({share:g})", call, ("greedy",))


def suffix_weighted_nll(nll: Tensor, gamma: float) -> Tensor:
    """IFT's loss of one sequence, [N] -> scalar.

    (1/N) sum_n w_n nll_n,  w_n = N S_n / sum S,  S_n = sum_{i>=n} gamma^(i-n) nll_i

    The weights are not held constant. gamma = 0 stands for w = 1: the mean.
    """
    if gamma == 0:
        return nll.mean()
    n = torch.arange(len(nll), device=nll.device)
    ahead = (n[None, :] - n[:, None]).to(nll.dtype)
    suffix = torch.where(ahead >= 0, gamma ** ahead.clamp(min=0), torch.zeros_like(ahead)) @ nll
    return (suffix * nll).sum() / suffix.sum()


def _ift_term(gamma: float) -> learn.Term:
    def loss(live: learn.Live) -> Tensor:
        live.note("nll", live.per_row(-live.logp) / live.per_row(torch.ones_like(live.logp)).clamp(min=1))
        rows = [-live.logp[live.row == r] for r in range(live.rows)]
        return torch.stack([suffix_weighted_nll(nll, gamma) if len(nll) else live.logp.sum() * 0 for nll in rows])

    return learn.Term(name="sft", on="demo", unit="sequence", loss=loss, live=("logp",), norm=learn.unit_mean)


@register(
    IFT,
    family="imitation",
    summary="SFT that reads a mixture of the demonstration and the model's own guess.",
    when="SFT shows exposure bias: good next to demonstrations, poor after its own tokens.",
)
def ift(
    task: draw.Source,
    *,
    share: Annotated[float, Option("Share of the model's own guess in the inputs.", at_least=0, at_most=1)] = 0.2,
    gamma: Annotated[float, Option("How far later tokens' losses weigh on a token.", at_least=0, at_most=1)] = 0.95,
) -> Method:
    """Intuitive fine-tuning.

    inputs at reply tokens: (1 - share) E[y_i] + share E[argmax_i], argmax_i the policy's likeliest token there
    L = mean over sequences of (1/N) sum_n w_n nll_n,  w_n = N S_n / sum S,  S_n = sum_{i>=n} gamma^(i-n) nll_i

    The released code's form (the printed double sum weighs late tokens more instead). share = 0 and gamma = 0 are
    SFT with a mean over sequences. Departure: the embedding table that mixes is the current one, held, where the
    code keeps a frozen copy.
    """
    return method(
        draw=draw.demos(task),
        rollout=rollout.demonstrated(),
        credit=credit.streams("policy", greedy="greedy"),
        learn=learn.Learn(_ift_term(gamma), embed=own_guess(share)),
        models=roles(),
    )
