"""Several sources as one, each with its weight."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from burnish.core import randomness
from burnish.core.task import Task, Verdict
from burnish.tasks.data.dataset import Dataset
from burnish.tasks.data.scan import common
from burnish.tasks.environment import CannotStart
from burnish.tasks.source import Source
from burnish.tasks.task_set import TaskSet, leaves, task_set

BLOCK = 1000  # tasks of a mixture with an endless source in which every source has its exact share
FROM = "dataset"  # the key of Task.given that names the source of a task


@dataclass(frozen=True)
class Ingredient:
    """A source of a mixture, with the name that its tasks carry, and its weight (None: as large as it is)."""

    source: Source
    name: str
    weight: float | None = None


class Mixture:
    """Tasks of several sources, each as often as its weight says.

    An epoch is the shortest sequence that has the shares of the weights and every row of every source at least once:
    a source that is small for its weight is repeated. Without weights each row comes once. Tasks carry the name of
    their source as given["dataset"]. What one source holds out is not trained on through another.
    """

    def __init__(self, name: str, ingredients: list[Ingredient]) -> None:
        self.name = name
        counted = Counter(one.name for one in ingredients)
        again: Counter[str] = Counter()
        self.ingredients: list[Ingredient] = []
        for one in ingredients:
            again[one.name] += 1
            unique = one.name if counted[one.name] == 1 else f"{one.name}#{again[one.name]}"
            self.ingredients.append(replace(one, name=unique))
        self.weighed = any(one.weight is not None for one in ingredients)

    @property
    def summary(self) -> str:
        if not self.weighed:
            return "rows of " + ", ".join(one.name for one in self.ingredients)
        shares = zip(self.ingredients, self.shares("train"), strict=True)
        return ", ".join(f"{percent(share)} {one.name}" for one, share in shares)

    @cached_property
    def gives(self) -> frozenset[str]:
        return common(one.source.gives for one in self.ingredients) | {FROM}

    def again(self) -> None:
        """Find anew what depends on the rows of the sources: they have left some out."""
        for name in ("gives", "_separated"):
            self.__dict__.pop(name, None)

    def sources(self) -> list[Source]:
        """The sources, after rows that one of them holds out have been left out of the others' training rows."""
        self._separated  # noqa: B018  # computed once
        return [one.source for one in self.ingredients]

    @cached_property
    def _separated(self) -> bool:
        inner = (leaf for one in self.ingredients for leaf in leaves(one.source))
        tables = [source for source in inner if isinstance(source, Dataset)]
        held = np.concatenate([table.part("heldout").hashes for table in tables]) if tables else np.zeros(0)
        for table in tables:
            table.without(held)
        return True

    def shares(self, split: str) -> list[float]:
        """The share of each source in the draws."""
        sizes = [source.size(split) for source in self.sources()]
        weights = [
            (one.weight if one.weight is not None else 1.0) if self.weighed or None in sizes else float(size or 0)
            for one, size in zip(self.ingredients, sizes, strict=True)
        ]
        return [weight / (sum(weights) or 1.0) for weight in weights]

    def _counts(self) -> list[int] | None:
        """How many tasks of an epoch each source has; None where one is endless."""
        sizes = [source.size("train") for source in self.sources()]
        if any(size is None for size in sizes):
            return None
        if not self.weighed:
            return [size or 0 for size in sizes]
        for one, size in zip(self.ingredients, sizes, strict=True):
            if not size:
                raise ValueError(
                    f"no row of {one.name!r} in the mixture {self.name!r} is left to train on: all are too long, or "
                    "held out by another of its datasets; leave it out, or change --max-length or heldout="
                )
        shares = self.shares("train")
        length = max(math.ceil((size or 0) / share) for size, share in zip(sizes, shares, strict=True))
        return [max(size or 0, round(share * length)) for size, share in zip(sizes, shares, strict=True)]

    def passes(self, tasks: int) -> list[tuple[str, float]]:
        """How often each source's rows are passed over in so many draws; 0 for an endless source."""
        sizes = [source.size("train") for source in self.sources()]
        return [
            (one.name, share * tasks / size if size else 0.0)
            for one, share, size in zip(self.ingredients, self.shares("train"), sizes, strict=True)
        ]

    def size(self, split: str) -> int | None:
        if split == "train":
            counts = self._counts()
            return None if counts is None else sum(counts)
        sizes = [source.size(split) for source in self.sources()]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def task(self, split: str, index: int) -> Task:
        number, inside = self._place(split, index)
        one = self.ingredients[number]
        try:
            task = one.source.task(split, inside)
        except CannotStart as error:
            error.task = _drawn_from(one, error.task)
            raise
        return _drawn_from(one, task)

    def _place(self, split: str, index: int) -> tuple[int, int]:
        """The source of an index, and the index there."""
        size = self.size(split)
        if size is None:
            shares = tuple(self.shares(split))
            block, place = divmod(index, BLOCK)
            order, before = _block(shares, block)
            number = order[place]
            return number, block * _portions(shares)[number] + before[place]
        if not size:
            raise ValueError(f"the mixture {self.name!r} has no {split} rows; add rows to one of its datasets")
        index %= size
        if split == "train":
            counts = self._counts() or []
            number = int(np.searchsorted(np.cumsum(counts), index, side="right"))
            inside = index - sum(counts[:number])
            return number, inside % (self.ingredients[number].source.size("train") or 1)
        sizes = tuple(source.size(split) or 0 for source in self.sources())
        order_of, inside_of = _interleaved(sizes, tuple(self.shares(split)))
        return int(order_of[index]), int(inside_of[index])

    # ------------------------------------------------------------------------------------------------- the verifiers

    @cached_property
    def _judges(self) -> dict[str, TaskSet]:
        return {one.name: task_set(one.source) for one in self.ingredients}

    @property
    def drop_failed(self) -> bool:
        return any(judge.drop_failed for judge in self._judges.values())

    @property
    def eager(self) -> None:
        return None

    def require_verifier(self, split: str) -> None:
        for judge in self._judges.values():
            judge.require_verifier(split)

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.verdicts([task], [reply])[0]

    def verdicts(self, tasks: list[Task], replies: list[str]) -> list[Verdict]:
        """Each reply by the verifier of its task's source, all replies of a source in one call."""
        places: dict[str, list[int]] = {}
        for i, task in enumerate(tasks):
            places.setdefault(task.given[FROM], []).append(i)
        found: dict[int, Verdict] = {}
        for name, own in places.items():
            verdicts = self._judges[name].verdicts([tasks[i] for i in own], [replies[i] for i in own])
            found |= dict(zip(own, verdicts, strict=True))
        return [found[i] for i in range(len(tasks))]


def _drawn_from(one: Ingredient, task: Task) -> Task:
    return replace(task, given={**task.given, FROM: one.name})


def percent(share: float) -> str:
    """A share as text: "70%", "0.1%"."""
    return f"{100 * share:.3g}%"


def _portions(shares: tuple[float, ...]) -> list[int]:
    """How many tasks of a block each source has: at least one, BLOCK in all."""
    ends = [round(sum(shares[: i + 1]) * BLOCK) for i in range(len(shares))]
    counts = [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    largest = counts.index(max(counts))
    raised = [max(1, count) for count in counts]
    raised[largest] -= sum(raised) - BLOCK
    return raised


@lru_cache(maxsize=8)
def _block(shares: tuple[float, ...], number: int) -> tuple[list[int], list[int]]:
    """The source of each task of a block, in a shuffled order, and how many of its tasks come before in the block."""
    listed = [i for i, count in enumerate(_portions(shares)) for _ in range(count)]
    order = [listed[i] for i in randomness.shuffled(len(listed), "mixture", number)]
    seen: Counter[int] = Counter()
    before = []
    for i in order:
        before.append(seen[i])
        seen[i] += 1
    return order, before


@lru_cache(maxsize=8)
def _interleaved(sizes: tuple[int, ...], shares: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """All rows once, in an order whose beginnings have the shares as long as every source has rows left."""
    numbers = np.concatenate([np.full(size, i) for i, size in enumerate(sizes)])
    inside = np.concatenate([np.arange(size) for size in sizes])
    when = np.concatenate([(np.arange(size) + 0.5) / share for size, share in zip(sizes, shares, strict=True) if size])
    order = np.argsort(when, kind="stable")
    return numbers[order], inside[order]
