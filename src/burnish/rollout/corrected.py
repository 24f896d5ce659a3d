"""Replies and their corrections, for a sequence-to-sequence reward model (arXiv 2409.00162)."""

from __future__ import annotations

from dataclasses import replace

from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.rollout.given import given_trace
from burnish.score.written import correction


@supplies("tag:corrected")
def corrected(*, author: str = "demo", reader: str = "policy") -> Rollout:
    """Two traces per task: the rejected reply corrected to the chosen one, and the chosen reply kept as it is."""

    def call(tasks: list[Task], step: Step) -> list[Group]:
        model, settings = step.models[reader], step.settings
        limit, cut = min(model.context, settings.max_length or model.context), settings.on_long == "truncate"
        groups = []
        for task in tasks:
            traces = [
                given_trace(correction(task, str(task.given[side])), "chosen", author, model.chat, limit, i, cut)
                for i, side in enumerate(("rejected", "chosen"))
            ]
            groups.append(Group(task, [replace(trace, tags=frozenset({"corrected"})) for trace in traces]))
        return groups

    return Rollout(
        name="corrected",
        call=call,
        reads=frozenset({"task:prompt", "given:chosen", "given:rejected"}),
        writes=names("tokens", ("task", author)) | names("tag", "corrected"),
    )
