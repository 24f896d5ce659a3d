"""Which demonstrations of agents are kept: those that succeed, and hold mistakes that were mended."""

from __future__ import annotations

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.tasks.refined import FAULTS, refinements


@supplies("tag:refined")
def refined(least: int = 1) -> Part:
    """Only conversations that end in success with at least so many refinements; their traces get the tag "refined".

    A refinement is a faulty reply followed by one without a fault (given "faults"). A conversation succeeds if its
    column `success` does not say otherwise and its last reply has no fault.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = []
        for group in groups:
            faults = group.task.given[FAULTS]
            succeeded = group.task.given.get("success", True) and not (faults and faults[-1])
            step.notes.add("faulty_replies", sum(bool(fault) for fault in faults), max(1, len(faults)))
            if group.traces and succeeded and refinements(faults) >= least:
                kept.append(group)
                for trace in group.traces:
                    trace.tags = trace.tags | {"refined"}
        step.notes.add("dropped/not_refined", len(groups) - len(kept), max(1, len(groups)))
        return kept

    return Part(
        name=f"refined({least})",
        call=call,
        reads=frozenset({f"given:{FAULTS}"}),
        writes=frozenset({"tag:refined"}),
        updates=frozenset({"tokens:demo"}),
    )
