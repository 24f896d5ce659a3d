"""Replies that were sampled and scored before, as they were."""

from __future__ import annotations

from dataclasses import replace

from burnish.nouns import Group, Task
from burnish.parts import Rollout, names, supplies
from burnish.step import Step


@supplies("tokens:*", "mu:*", "score:reward")
def recalled(*, author: str = "policy") -> Rollout:
    """The remembered group of each task: the same tokens, log-probs at birth, versions and scores; streams are made anew."""

    def call(tasks: list[Task], step: Step) -> list[Group]:
        past: list[Group] = [task.given["group"] for task in tasks]
        return [Group(g.task, [replace(t, scores=dict(t.scores), streams={}) for t in g.traces]) for g in past]

    return Rollout(
        name="recalled",
        call=call,
        reads=frozenset({"given:group"}),
        writes=names("tokens", ("task", author)) | names("mu", author) | frozenset({"score:reward"}),
    )
