"""Replies that were sampled and scored before, as they were."""

from __future__ import annotations

from dataclasses import replace

from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task


@supplies("tokens:*", "mu:*", "score:reward")
def recalled(*, author: str = "policy", others: tuple[str, ...] = ()) -> Rollout:
    """The remembered group of each task.

    Tokens, log-probs at birth, versions and scores are the same; streams are made anew.

    author  who sampled the replies; others  authors of replies that were given, not sampled
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        past: list[Group] = [task.given["group"] for task in tasks]
        return [Group(g.task, [replace(t, scores=dict(t.scores), streams={}) for t in g.traces]) for g in past]

    return Rollout(
        name="recalled",
        call=call,
        reads=frozenset({"given:group"}),
        writes=names("tokens", ("task", author, *others)) | names("mu", author) | frozenset({"score:reward"}),
    )
