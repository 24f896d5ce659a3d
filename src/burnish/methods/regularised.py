"""Supervised fine-tuning with noisy or mixed inputs, or with half of the parameters at rest."""

from __future__ import annotations

import re
from functools import cache

import torch
from torch import Tensor

from burnish import randomness
from burnish.cast.roles import stage
from burnish.credit.members import member
from burnish.credit.streams import streams
from burnish.draw.tasks import demos
from burnish.learn.inputs import noise_keys, own_guess, uniform_noise
from burnish.learn.learn import Learn
from burnish.learn.norms import unit_mean
from burnish.learn.term import Live, Term
from burnish.learn.terms import imitate
from burnish.method import Method, method
from burnish.methods.table import register
from burnish.nouns import Clock
from burnish.parts import chain
from burnish.rollout.given import given
from burnish.tasks.source import Source


@register(
    family="imitation",
    catalogue=("nefttune",),
    title="NEFTune: Noisy Embeddings Improve Instruction Finetuning",
    arxiv="2310.05914",
    summary="SFT with uniform noise on the input embeddings.",
    when="You fine-tune on a small instruction set and replies come out stiff or overfitted.",
)
def neftune(task: Source, *, alpha: float = 5.0) -> Method:
    """NEFTune: supervised fine-tuning on noisy inputs.

    e' = e + (alpha / sqrt(L d)) u,  u ~ U(-1, 1) per entry, L the tokens of the sequence, d the width;   L = mean of -log pi

    The noise of a token is a hash of the seed, the step, the task and its position. alpha = 0 is SFT.
    alpha: the noise's scale; the paper tries 5, 10 and 15.
    """
    return method(
        draw=demos(task),
        rollout=given("demo"),
        credit=chain(noise_keys(), member("sft", "demo")),
        learn=Learn(imitate(), embed=uniform_noise(alpha)),
        cast=stage(),
    )


def suffix_weighted_nll(nll: Tensor, gamma: float) -> Tensor:
    """IFT's loss of one sequence: (1/N) sum_n w_n nll_n, w_n = N S_n / sum S, S_n = sum_{i>=n} gamma^(i-n) nll_i. [N] -> scalar.

    The weights are not held constant. gamma = 0 stands for w = 1: the mean.
    """
    if gamma == 0:
        return nll.mean()
    n = torch.arange(len(nll), device=nll.device)
    ahead = (n[None, :] - n[:, None]).to(nll.dtype)
    suffix = torch.where(ahead >= 0, gamma ** ahead.clamp(min=0), torch.zeros_like(ahead)) @ nll
    return (suffix * nll).sum() / suffix.sum()


def _ift_term(gamma: float) -> Term:
    def loss(live: Live) -> Tensor:
        live.note("nll", live.per_row(-live.logp) / live.per_row(torch.ones_like(live.logp)).clamp(min=1))
        rows = [-live.logp[live.row == r] for r in range(live.rows)]
        return torch.stack([suffix_weighted_nll(nll, gamma) if len(nll) else live.logp.sum() * 0 for nll in rows])

    return Term(name="sft", unit="sequence", loss=loss, live=("logp",), norm=unit_mean)


@register(
    family="imitation",
    catalogue=("ift",),
    title="Intuitive Fine-Tuning: Towards Simplifying Alignment into a Single Process",
    arxiv="2405.11870",
    summary="SFT that reads a mixture of the demonstration and the model's own guess.",
    when="SFT shows exposure bias: good next to demonstrations, poor after its own tokens.",
)
def ift(task: Source, *, share: float = 0.2, gamma: float = 0.95) -> Method:
    """Intuitive fine-tuning.

    inputs at reply tokens: (1 - share) E[y_i] + share E[argmax_i], argmax_i the policy's likeliest token there
    L = mean over sequences of (1/N) sum_n w_n nll_n,  w_n = N S_n / sum S,  S_n = sum_{i>=n} gamma^(i-n) nll_i

    The released code's form (the printed double sum weighs late tokens more instead). share = 0 and gamma = 0 are SFT with a
    mean over sequences. Departure: the embedding table that mixes is the current one, held, where the code keeps a frozen copy.
    share: of the model's own guess in the inputs. gamma: how far later tokens' losses weigh on a token.
    """
    return method(
        draw=demos(task),
        rollout=given("demo"),
        credit=chain(streams("policy", greedy="greedy"), member("sft", "demo")),
        learn=Learn(_ift_term(gamma), embed=own_guess(share)),
        cast=stage(),
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
    family="imitation",
    catalogue=("hft",),
    title="HFT: Half Fine-Tuning for Large Language Models",
    arxiv="2404.18466",
    summary="SFT that lets half of the parameters rest, another half each round.",
    when="SFT on a new task costs the model its old ones.",
)
def hft(task: Source, *, round_steps: int = 1000) -> Method:
    """Half fine-tuning.

    theta' = theta + M delta:  M rests, at random in each layer, 2 of 4 attention matrices, 1 of 2 norms, and 1 or 2 of the 3
    feed-forward matrices (in half of the layers each); embeddings and head are always trained;   L = mean of -log pi

    Matrices go by the names of Llama-like models; a model without them trains whole.
    round_steps: steps after which another half is drawn.
    """

    def rests(name: str, clock: Clock) -> bool:
        found = _LAYER.search(name)
        return found is not None and found[2] in half(clock.seed, clock.step // round_steps, int(found[1]))

    return method(
        draw=demos(task),
        rollout=given("demo"),
        credit=member("sft", "demo"),
        learn=Learn(imitate(), rest=rests),
        cast=stage(),
    )
