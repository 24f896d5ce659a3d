"""Wrong labels on purpose: a share of the training preferences is reversed, to measure how robust a method is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from burnish.core.randomness import key_of
from burnish.core.task import Task, Verdict
from burnish.tasks.limited import Sandboxed
from burnish.tasks.source import SameTasks, Source


class Flipped(SameTasks):
    """A source with a share of its training labels reversed: "pairs.jsonl,flip=0.2".

    Of a pair, chosen and rejected change places (a task's own "demo" and "mistake" are such a pair); the label of a
    single reply is negated; of ranked replies the order is reversed. Which rows are wrong depends on their content
    alone, so it is the same in every epoch and for every seed, and the rows of a smaller share are among those of a
    larger one. Held-out rows keep their labels.
    """

    def __init__(self, source: Source, share: Any) -> None:
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ValueError(f"task {source.name!r}: flip={share} is not a share of the labels between 0 and 1")
        super().__init__(source)
        self.share = float(share)
        gives = source.gives
        self._pair = ("chosen", "rejected") if {"chosen", "rejected"} <= gives else ("demo", "mistake")
        self._labelled = {"demo", "label"} <= gives
        if set(self._pair) <= gives:
            self.gives = gives | {"chosen", "rejected"}
        elif not self._labelled:
            has = ", ".join(sorted(gives)) or "only prompts"
            raise ValueError(
                f"task {source.name!r} has no labels that flip={share:g} could reverse (it gives {has}); choose data "
                "with the columns chosen and rejected, or completion and label"
            )

    def task(self, split: str, index: int) -> Task:
        task = self.source.task(split, index)
        wrong = split == "train" and self.is_flipped(task)
        return replace(task, given=self._given(task.given, wrong))

    def is_flipped(self, task: Task) -> bool:
        """Whether the label of a training task is reversed."""
        said = [str(task.given.get(name, "")) for name in ("chosen", "rejected", "demo")]
        return key_of("flip", task.key, *said) % 2**32 < self.share * 2**32

    def _given(self, given: Mapping[str, Any], wrong: bool) -> dict[str, Any]:
        changed = dict(given)
        if set(self._pair) <= given.keys():
            chosen, rejected = (given[name] for name in self._pair)
            changed |= {"chosen": chosen, "rejected": rejected}
            if wrong:
                changed |= {"chosen": rejected, "rejected": chosen}
        elif wrong and self._labelled:
            changed["label"] = not given["label"]
        if wrong and "responses" in given:
            changed["responses"] = list(reversed(given["responses"]))
        return changed

    # ------------------------------------------------------------------------------------------------- the verifier

    def scorer(self) -> dict[str, Any]:
        return self._verifier().scorer()

    def facts(self, task: Task) -> Any:
        return self._verifier().facts(task)

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.source.verify(task, reply)

    def _verifier(self) -> Sandboxed:
        assert isinstance(self.source, Sandboxed), f"{self.source.name} is none of burnish's own sources"
        return self.source
