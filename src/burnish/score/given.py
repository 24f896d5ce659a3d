"""Scores that are part of the data."""

from __future__ import annotations

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group


@supplies("score:reward")
def given_order(*tags: str, lowest: float = 0.0, gap: float = 1.0) -> Part:
    """scores["reward"] by the order of tags, best first: given_order("chosen", "rejected") scores 1 and 0.

    The last tag scores `lowest`, each one before it `gap` more.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            for trace in group.traces:
                rank = next(i for i, tag in enumerate(tags) if tag in trace.tags)
                trace.scores["reward"] = lowest + gap * (len(tags) - 1 - rank)
        return groups

    return Part(
        name=f"given_order({', '.join(tags)})",
        call=call,
        reads=frozenset(f"tag:{tag}" for tag in tags),
        writes=frozenset({"score:reward"}),
    )


@supplies("score:reward")
def given_scores() -> Part:
    """scores["reward"] of listed replies: the scores of the data; where it has ranks alone, minus the rank."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            given = group.task.given
            worth = given.get("scores") or [-float(rank) for rank in given["ranks"]]
            for trace in group.traces:
                trace.scores["reward"] = float(worth[trace.index])
        return groups

    return Part(name="given_scores", call=call, reads=frozenset({"tag:listed"}), writes=frozenset({"score:reward"}))


@supplies("score:reward")
def given_label() -> Part:
    """scores["reward"] = 1 where the row's label says that its reply is good, 0 where it says that it is not."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            label = group.task.given["label"]
            if not isinstance(label, bool):
                raise ValueError(
                    f"task {group.task.key[:60]!r} has the label {label!r}; labels of replies are true or false"
                )
            for trace in group.traces:
                trace.scores["reward"] = float(label)
        return groups

    return Part(
        name="given_label",
        call=call,
        reads=frozenset({"given:label"}),
        writes=frozenset({"score:reward"}),
    )
