"""NEFTune: Noisy Embeddings Improve Instruction Finetuning (arXiv 2310.05914)."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn

from burnish import draw, learn, rollout
from burnish.core import randomness
from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.learn.learn import Embed
from burnish.method import Method, Option, method, roles
from burnish.methods import register
from burnish.papers import Paper

NEFTTUNE = Paper("nefttune", "2310.05914", "NEFTune: Noisy Embeddings Improve Instruction Finetuning")


@supplies("stream:noise")
def noise_keys() -> Part:
    """A fresh 64-bit key for every token of the pass, as stream "noise": what its noise is a hash of."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        clock = step.clock
        key = randomness.key_of(clock.seed, "noise", clock.step, clock.tick, group.task.key, trace.index)
        trace.streams["noise"] = torch.arange(len(trace)) * 0x9E3779B9 + key

    return per_trace(write, name="noise_keys", reads=frozenset({"tokens:task"}), writes=frozenset({"stream:noise"}))


def uniform_noise(alpha: float) -> Embed:
    """NEFTune's noise (arXiv 2310.05914): e + (alpha / sqrt(L d)) u, u ~ U(-1, 1) per entry, L tokens of d numbers."""

    def call(embeddings: Tensor, trace: Trace, table: nn.Module) -> Tensor:
        length, width = embeddings.shape
        keys, counters = trace.streams["noise"][:, None], torch.arange(width)[None]
        noise = 2 * randomness.uniform(keys, counters) - 1
        noisy: Tensor = embeddings + (alpha / (length * width) ** 0.5) * noise.to(embeddings)
        return noisy

    return Embed(f"uniform_noise({alpha:g})", call, ("noise",))


@register(
    NEFTTUNE,
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
        credit=noise_keys(),
        learn=learn.Learn(learn.imitate(on="demo"), embed=uniform_noise(alpha)),
        models=roles(),
    )
