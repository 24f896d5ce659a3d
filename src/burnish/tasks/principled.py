"""Pairs whose prompt carries principles, which decide the label (SALMON)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from random import Random
from typing import Any

from burnish.core.messages import appended
from burnish.core.seeds import rng
from burnish.core.task import Task
from burnish.judges import vote
from burnish.tasks.judged import candidates, require_preferences
from burnish.tasks.source import Source
from burnish.tasks.task_set import MadeTasks

SCORES = "principle_scores"  # column: principle -> score in favour of the chosen reply; null where it abstains
ONLY = "The reply is the better one for this request."
SCANNED = 10_000  # rows whose scores give the variances


def with_principles(task: Task, principles: Sequence[str]) -> Task:
    """The task with principles at the end of its prompt."""
    text = "\n\nA good reply follows these principles:\n" + "\n".join(f"- {one}" for one in principles)
    if isinstance(task.prompt, str):
        return replace(task, prompt=task.prompt + text)
    return replace(task, prompt=(*task.prompt[:-1], appended(task.prompt[-1], text)))


def negated(principle: str) -> str:
    """The principle turned into its opposite, as text."""
    return f"The opposite of this: {principle}"


class Principled(MadeTasks):
    """Pairs with a random list of principles in the prompt; the label is that of the decisive principle.

    s_p = score of principle p in favour of the chosen reply / variance of p's scores over the data
    label = sign of the s_p of largest size, the sign turned where the principle is negated, and flipped with `noise`

    The number of principles is geometric with `chance`, at most `most`; each is negated with chance `negate`, in text
    and sign. Rows without principle_scores have the one principle that their chosen reply is better. Where all listed
    principles abstain, the given label counts. Everything depends on the row alone, not on the step.
    """

    def __init__(self, source: Source, negate: float, noise: float, chance: float, most: int) -> None:
        require_preferences(source)
        super().__init__(source)
        self.negate, self.noise, self.chance, self.most = negate, noise, chance, most
        self.gives = source.gives | {"chosen", "rejected"}

    @cached_property
    def variances(self) -> dict[str, float]:
        """The variance of each principle's scores over the training rows; 1 where it has fewer than two different."""
        size = self.source.size("train") if SCORES in self.source.gives else 0
        found: dict[str, list[float]] = {}
        for i in range(min(size or 0, SCANNED)):
            for name, score in scores_of(self.source.task("train", i)).items():
                if score is not None:
                    found.setdefault(name, []).append(score)
        return {name: statistics.pvariance(own) or 1.0 for name, own in found.items()}

    def task(self, split: str, index: int) -> Task:
        row = self.source.task(split, index)
        dice = rng("salmon", row.key, *candidates(row)[0])
        principles, prefers = self.label(scores_of(row), dice)
        replies, worth = candidates(row)
        best, worst = replies[worth.index(max(worth))], replies[worth.index(min(worth))]
        flipped = split == "train" and dice.random() < self.noise
        first, second = (best, worst) if prefers != flipped else (worst, best)
        made = with_principles(row, principles)
        return replace(made, given={**row.given, "chosen": first, "rejected": second})

    def label(self, scores: Mapping[str, float | None], dice: Random) -> tuple[list[str], bool]:
        """The drawn principles as text, and whether they prefer the chosen reply."""
        count = 1
        while count < min(self.most, len(scores)) and dice.random() >= self.chance:
            count += 1
        names = dice.sample(sorted(scores), count)
        signs = [-1.0 if dice.random() < self.negate else 1.0 for _ in names]
        scaled: list[float | None] = []
        for name, sign in zip(names, signs, strict=True):
            score = scores[name]
            scaled.append(None if score is None else sign * score / self.variances.get(name, 1.0))
        texts = [negated(name) if sign < 0 else name for name, sign in zip(names, signs, strict=True)]
        decides = vote.decisive(scaled)
        return texts, True if decides is None else (scaled[decides] or 0.0) > 0


def scores_of(row: Task) -> dict[str, float | None]:
    """Principle -> score of a row, from a mapping or a list of {name, rating}; one principle where it has none."""
    given: Any = row.given.get(SCORES)
    if isinstance(given, list | tuple):
        given = {str(one["name"]): one["rating"] for one in given}
    if not given:
        return {ONLY: 1.0}
    return {str(name): None if score is None else float(score) for name, score in given.items()}
