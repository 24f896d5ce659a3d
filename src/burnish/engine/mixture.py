"""Sampling from a mixture of models: how the logits of several models become one distribution."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from burnish.util.tensors import shared_columns

Mix = Callable[
    [list[Tensor]], Tensor
]  # [own logits, other's logits, ...], each [B, V], to the log-weights that are sampled


@dataclass(frozen=True)
class Blend:
    """The other models whose logits are wanted at every token, and how all of them are mixed.

    The log-prob recorded with a sampled token is that of the mixture: it is the behaviour policy. Models of one family
    may have more embeddings than tokens; `mix` is given the ids that all of them have.
    """

    name: str
    others: tuple[str, ...]
    of_shared: Mix

    def mix(self, logits: list[Tensor]) -> Tensor:
        """[own logits, other's logits, ...] as log-weights over the ids that all models have."""
        return self.of_shared(shared_columns(logits))


def geometric(other: str, weight: float) -> Blend:
    """log pi_mix = (1 - weight) log pi + weight log pi_other, normalised (Nash-MD's mixture, arXiv 2312.00886)."""
    _check(weight)

    def mix(logits: list[Tensor]) -> Tensor:
        own, theirs = (torch.log_softmax(x, -1) for x in logits)
        return torch.lerp(own, theirs, weight)

    return Blend(f"geometric({other}, {weight:g})", (other,), mix)


def arithmetic(other: str, weight: float) -> Blend:
    """pi_mix = (1 - weight) pi + weight pi_other (MiniLLM's teacher-mixed sampling, arXiv 2306.08543)."""
    _check(weight)

    def mix(logits: list[Tensor]) -> Tensor:
        own, theirs = (torch.log_softmax(x, -1) for x in logits)
        if weight in (0.0, 1.0):
            return theirs if weight else own
        return torch.logaddexp(own + math.log(1 - weight), theirs + math.log(weight))

    return Blend(f"arithmetic({other}, {weight:g})", (other,), mix)


def masked_by(other: str, top_p: float) -> Blend:
    """pi restricted to the smallest set of tokens that holds top_p of the other's probability (NLPO,
    arXiv 2210.01241).
    """
    _check(top_p)

    def mix(logits: list[Tensor]) -> Tensor:
        own, theirs = (torch.log_softmax(x, -1) for x in logits)
        ranked, index = theirs.sort(-1, descending=True)
        outside = (ranked.exp().cumsum(-1) - ranked.exp()) >= top_p
        return own.masked_fill(torch.zeros_like(outside).scatter(-1, index, outside), -torch.inf)

    return Blend(f"masked_by({other}, {top_p:g})", (other,), mix)


def guided(weights: Mapping[str, float]) -> Blend:
    """log pi + sum_i w_i log pi_i, normalised: other models guide the policy (EFT, arXiv 2310.12962; GenARM,
    2410.08193).

    A negative weight takes away what a model says. Weights of 0 leave pi as it is.
    """
    given = dict(weights)

    def mix(logits: list[Tensor]) -> Tensor:
        total = torch.log_softmax(logits[0], -1)
        for weight, theirs in zip(given.values(), logits[1:], strict=True):
            if weight:
                total = total + weight * torch.log_softmax(theirs, -1)
        return total

    shown = ", ".join(f"{weight:+g} {name}" for name, weight in given.items())
    return Blend(f"guided({shown})", tuple(given), mix)


def by_values(critics: tuple[str, ...], beta: float) -> Blend:
    """log pi + beta min_i Q_i, normalised: the decoding of ILQL (arXiv 2206.11871).

    Q_i = l_i - l, the logits of the i-th critic minus those of the policy that samples, from which the critics started
    (learn/maths/token_values.py). ILQL's log pi + beta (Q - V) is the same distribution, because V is the same number
    for all tokens. beta = 0 is pi itself.
    """
    if beta < 0:
        raise ValueError(f"beta is {beta}; the weight of the values is at least 0")

    def mix(logits: list[Tensor]) -> Tensor:
        own = logits[0]
        values = torch.stack([other - own for other in logits[1:]]).amin(0)
        return torch.log_softmax(own, -1) + beta * values

    return Blend(f"by_values({', '.join(critics)}, {beta:g})", critics, mix)


def _check(share: float) -> None:
    if not 0 <= share <= 1:
        raise ValueError(f"a share of {share} in a blend is not between 0 and 1")
