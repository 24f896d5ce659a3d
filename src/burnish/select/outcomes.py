"""Whole groups kept or dropped by how many of their replies are right."""

from __future__ import annotations

from collections.abc import Callable

from burnish.core.parts import Part
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.score.lengths import right_replies


def keep_groups(tag: str, test: Callable[[int, int], bool]) -> Part:
    """Keep the groups for which `test(right replies, replies)` holds, and tag their traces; the others are counted."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = [group for group in groups if test(right_replies(group), len(group.traces))]
        for trace in (trace for group in kept for trace in group.traces):
            trace.tags |= {tag}
        step.notes.add(f"dropped/not_{tag}", len(groups) - len(kept), len(groups))
        return kept

    return Part(name=tag, call=call, reads=frozenset({"score:reward"}), writes=frozenset({f"tag:{tag}"}))
