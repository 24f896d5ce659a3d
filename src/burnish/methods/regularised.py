"""Supervised fine-tuning with noisy or mixed inputs, or with half of the parameters at rest."""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout
from burnish.core import randomness
from burnish.method import Clock, Method, Option, method, roles
from burnish.methods import papers, register


@register(
    papers.NEFTTUNE,
    family="imitation",
    summary="SFT with uniform noise on the input embeddings.",
    when="You fine-tune on a small instruction set and replies come out stiff or overfitted.",
)
def neftune(task: draw.Source, *, alpha: Annotated[float, Option("The noise's scale.", at_least=0)] = 5.0) -> Method:
    """NEFTune: supervised fine-tuning on noisy inputs.

    e' = e + (alpha / sqrt(T d)) u,  u ~ U(-1, 1) per entry, T the sequence's tokens, d the width;   L = mean of -log pi

    The noise of a token is a hash of the seed, the step, the task and its position. alpha = 0 is SFT. The paper
    tries alpha = 5, 10 and 15.
    """
    return method(
        draw=draw.demos(task),
        rollout=rollout.demonstrated(),
        credit=learn.noise_keys(),
        learn=learn.Learn(learn.imitate(on="demo"), embed=learn.uniform_noise(alpha)),
        models=roles(),
    )


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
    papers.IFT,
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
        learn=learn.Learn(_ift_term(gamma), embed=learn.own_guess(share)),
        models=roles(),
    )


_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_FEED = ("gate_proj", "up_proj", "down_proj")
_NORMS = ("input_layernorm", "post_attention_layernorm")
_LAYER = re.compile(r"layers\.(\d+)\.(?:self_attn\.|mlp\.)?(\w+)")


@cache
def half(seed: int, round_: int, layer: int) -> frozenset[str]:
    """The matrices of a layer that rest in a round: 2 of 4 in attention, 1 of 2 norms, and of the 3 feed-forward ones
    1 in half of the layers and 2 in the others."""
    dice = randomness.rng(seed, "half", round_, layer)
    one_or_two = 1 + (layer + round_) % 2
    return frozenset([*dice.sample(_ATTENTION, 2), *dice.sample(_NORMS, 1), *dice.sample(_FEED, one_or_two)])


@register(
    papers.HFT,
    family="imitation",
    summary="SFT that lets half of the parameters rest, another half each round.",
    when="SFT on a new task costs the model its old ones.",
)
def hft(
    task: draw.Source,
    *,
    round_steps: Annotated[int, Option("Steps after which another half is drawn.", at_least=1)] = 1000,
) -> Method:
    """Half fine-tuning.

    theta' = theta + M delta:  M rests, at random in each layer, 2 of 4 attention matrices, 1 of 2 norms, and 1 or 2
    of the 3 feed-forward matrices (in half of the layers each); embeddings and head are always trained
    L = mean of -log pi

    Matrices go by the names of Llama-like models; a model without them trains whole.
    """

    def rests(name: str, clock: Clock) -> bool:
        found = _LAYER.search(name)
        return found is not None and found[2] in half(clock.seed, clock.step // round_steps, int(found[1]))

    return method(
        draw=draw.demos(task),
        rollout=rollout.demonstrated(),
        learn=learn.Learn(learn.imitate(on="demo"), rest=rests),
        models=roles(),
    )
