"""Ranked replies that came with the task."""

from __future__ import annotations

from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.rollout.given import given_trace


@supplies("tag:listed")
def listed(*, author: str = "demo", reader: str = "policy") -> Rollout:
    """One trace for each of the task's "responses", in their order, best first, tagged "listed"."""

    def call(tasks: list[Task], step: Step) -> list[Group]:
        model, settings = step.models[reader], step.settings
        limit, cut = min(model.context, settings.max_length or model.context), settings.on_long == "truncate"
        groups = []
        for task in tasks:
            each = [Task(task.kind, task.prompt, {"listed": text}, task.key) for text in task.given["responses"]]
            traces = [given_trace(one, "listed", author, model.chat, limit, i, cut) for i, one in enumerate(each)]
            groups.append(Group(task, traces))
        return groups

    return Rollout(
        name="listed",
        call=call,
        ahead=True,
        reads=frozenset({"task:prompt", "given:responses"}),
        writes=names("tokens", ("task", author)) | names("tag", "listed"),
    )
