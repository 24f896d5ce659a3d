"""Wrong labels on purpose: a share of the training preferences is reversed, to measure how robust a method is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from burnish.core.randomness import key_of
from burnish.core.task import Task
from burnish.tasks.source import Source
from burnish.tasks.task_set import TaskSet, task_set


def flipped(source: Source, share: object) -> TaskSet:
    """A source with a share of its training labels reversed: "pairs.jsonl,flip=0.2".

    Of a pair, chosen and rejected change places (a task's own "demo" and "mistake" are such a pair); the label of a
    single reply is negated; of ranked replies the order is reversed. Which rows are wrong depends on their content
    alone, so it is the same in every epoch and for every seed, and the rows of a smaller share are among those of a
    larger one. Held-out rows keep their labels.
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise ValueError(f"task {source.name!r}: flip={share} is not a share of the labels between 0 and 1")
    gives = source.gives
    pair = ("chosen", "rejected") if {"chosen", "rejected"} <= gives else ("demo", "mistake")
    labelled = {"demo", "label"} <= gives
    if not set(pair) <= gives and not labelled:
        has = ", ".join(sorted(gives)) or "only prompts"
        raise ValueError(
            f"task {source.name!r} has no labels that flip={share:g} could reverse (it gives {has}); choose data "
            "with the columns chosen and rejected, or completion and label"
        )
    added = ("chosen", "rejected") if set(pair) <= gives else ()
    return task_set(source).changed(_Flip(float(share), pair, labelled), *added)


def is_flipped(task: Task, share: float) -> bool:
    """Whether the label of a training task is reversed."""
    texts = [str(task.given.get(name, "")) for name in ("chosen", "rejected", "demo")]
    return key_of("flip", task.key, *texts) % 2**32 < share * 2**32


@dataclass(frozen=True)
class _Flip:
    """The change of each task: the keys of its pair, and whether its single reply has a label."""

    share: float
    pair: tuple[str, str]
    labelled: bool

    def __call__(self, split: str, task: Task) -> Task:
        wrong = split == "train" and is_flipped(task, self.share)
        return replace(task, given=self._given(task.given, wrong))

    def _given(self, given: Mapping[str, Any], wrong: bool) -> dict[str, Any]:
        changed = dict(given)
        if set(self.pair) <= given.keys():
            chosen, rejected = (given[name] for name in self.pair)
            changed |= {"chosen": chosen, "rejected": rejected}
            if wrong:
                changed |= {"chosen": rejected, "rejected": chosen}
        elif wrong and self.labelled:
            changed["label"] = not given["label"]
        if wrong and "responses" in given:
            changed["responses"] = list(reversed(given["responses"]))
        return changed
