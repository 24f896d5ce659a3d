"""The proof that a sampler runs the trained weights: it and the trainer give the same log-probs to a
few fixed texts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from burnish.core.types import Task
from burnish.engine.vocabulary import Prompter

NAME = "mismatch/probe"
TOLERANCE = {
    "float32": 1e-4,
    "bfloat16": 2e-2,
}  # mean difference of a token's log-prob; docs/engines.md says what was measured
LONGEST = 128  # tokens of one text

_TEXTS = (
    ("What is 17 + 25?", "17 + 25 = 42"),
    ("Sort these words: pear fig apple", "apple fig pear"),
    ("Which is larger, 9.11 or 9.9? Think, then answer.", "9.9 is 9.90, and 9.90 > 9.11. The answer is 9.9."),
    ("Write a line of Python that prints the squares up to 100.", "print([n * n for n in range(11)])"),
)


class WrongWeights(ValueError):
    """The sampler does not run the weights that are trained."""


@dataclass(frozen=True)
class Difference:
    """How far two engines' log-probs of the probe are apart, over its tokens."""

    mean: float
    most: float
    tokens: int

    def __str__(self) -> str:
        return f"{self.mean:.2g} on average, {self.most:.2g} at most, over {self.tokens} tokens"


def probe_rows(chat: Prompter, context: int) -> list[Tensor]:
    """The texts as tokens: prompts and replies, the same at every publish."""
    rows = [torch.cat([chat.prompt(Task("probe", asked, {}, asked)), chat.reply(said)]) for asked, said in _TEXTS]
    return [row[: min(LONGEST, context - 1)] for row in rows]


def difference(ours: list[list[float]], theirs: list[list[float]]) -> Difference:
    """Of two engines' log-probs, row by row. One that is no number makes the difference infinite."""
    one, other = (torch.tensor([x for row in rows for x in row], dtype=torch.float64) for rows in (ours, theirs))
    if one.shape != other.shape or not bool((one.isfinite() & other.isfinite()).all()):
        return Difference(float("inf"), float("inf"), len(one))
    apart = (one - other).abs()
    return Difference(float(apart.mean()), float(apart.max()), len(one))
