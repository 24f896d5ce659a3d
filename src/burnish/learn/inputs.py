"""Ways to change what a model reads while it learns."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from burnish.core import randomness
from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.learn.learn import Embed


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
        return embeddings + (alpha / (length * width) ** 0.5) * noise.to(embeddings)

    return Embed(f"uniform_noise({alpha:g})", call, ("noise",))


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


def other_tokens() -> Embed:
    """The embeddings of stream "read" in place of those of the tokens themselves: what is read is not what is said."""

    def call(embeddings: Tensor, trace: Trace, table: nn.Module) -> Tensor:
        return table(trace.streams["read"].to(embeddings.device))

    return Embed("other_tokens", call, ("read",))
