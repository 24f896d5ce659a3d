"""Replies of an earlier policy that came with the task, beside those that are sampled now."""

from __future__ import annotations

from dataclasses import replace

from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn


@supplies("tokens:replay", "tag:replay")
def replayed(*, author: str = "replay") -> Rollout:
    """The traces in given["replay"] of each task (`draw.with_replies`), written by `author`.

    Their tokens are those that were sampled. Log-probs and scores are not taken over: `credit.old` and `score.verify`
    make new ones.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        return [
            Group(_without(task), [_rewritten(trace, i, author) for i, trace in enumerate(task.given["replay"])])
            for task in tasks
        ]

    return Rollout(
        name="replayed",
        call=call,
        reads=frozenset({"task:prompt", "given:replay"}),
        writes=names("tokens", ("task", author)) | names("tag", author),
    )


def _without(task: Task) -> Task:
    return replace(task, given={name: value for name, value in task.given.items() if name != "replay"})


def _rewritten(trace: Trace, index: int, author: str) -> Trace:
    turns = [trace.turns[0]]
    for turn in trace.turns[1:]:
        turns.append(Turn(turn.tokens, author, parent=turns[-1], settings=turn.settings))
    return Trace(tuple(turns), index, tags=frozenset({author}))
