"""NEFTune: Noisy Embeddings Improve Instruction Finetuning (arXiv 2310.05914)."""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout
from burnish.method import Method, Option, method, roles
from burnish.methods import register
from burnish.papers import Paper

NEFTTUNE = Paper("nefttune", "2310.05914", "NEFTune: Noisy Embeddings Improve Instruction Finetuning")


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
        credit=learn.noise_keys(),
        learn=learn.Learn(learn.imitate(on="demo"), embed=learn.uniform_noise(alpha)),
        models=roles(),
    )
