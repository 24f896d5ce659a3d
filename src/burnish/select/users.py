"""Pairs of one user side by side, so that what one of them says of the user can be used for the others."""

from __future__ import annotations

from burnish.core.parts import Part, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.select.pairs import given_pairs


@supplies("pairs", "tag:of a user")
def user_pairs(column: str) -> Part:
    """The data's pairs, in one group for each user of the batch; rows without the column are one user's."""
    given = given_pairs()

    def call(groups: list[Group], step: Step) -> list[Group]:
        merged: dict[str, Group] = {}
        for group in given.call(groups, step):
            mine = merged.setdefault(str(group.task.given.get(column, "")), Group(group.task, [], []))
            start = len(mine.traces)
            mine.traces = [*mine.traces, *group.traces]
            mine.pairs = [*(mine.pairs or ()), *((a + start, b + start) for a, b in group.pairs or ())]
        step.notes.add("pairs_of_user", sum(len(g.pairs or ()) for g in merged.values()), max(1, len(merged)))
        return list(merged.values())

    return Part(
        name=f"user_pairs({column})", call=call, reads=given.reads, writes=given.writes | names("tag", "of a user")
    )
