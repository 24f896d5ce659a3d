"""HFT: Half Fine-Tuning for Large Language Models (arXiv 2404.18466)."""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated

from burnish import draw, learn, rollout
from burnish.core import randomness
from burnish.method import Clock, Method, Option, method, roles
from burnish.methods import register
from burnish.papers import Paper

HFT = Paper("hft", "2404.18466", "HFT: Half Fine-Tuning for Large Language Models")

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
    HFT,
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
