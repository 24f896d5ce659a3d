"""Replies of the kinds that the axioms of preference compare, built from the rows of a batch."""

from __future__ import annotations

from dataclasses import replace

from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.rollout.conditioned import conditioned
from burnish.rollout.given import given_trace

GROUNDED = "Evidence: {0}"
OPTIONAL = {"false": "false", "combined": "combined"}  # kind -> the column that holds such a reply


@supplies("tag:axioms")
def by_axioms(*, author: str = "demo", reader: str = "rm") -> Rollout:
    """The chosen and the rejected reply, the chosen reply of another question, and what further columns allow.

    Columns "false" (plausible, but wrong) and "combined" (several answers joined) are replies; "evidence" is put before
    the question: the chosen reply with its own evidence, and with another question's. The other question is the next
    one of the batch by its key.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        model, settings = step.models[reader], step.settings
        limit, cut = min(model.context, settings.max_length or model.context), settings.on_long == "truncate"
        order = sorted(tasks, key=lambda task: task.key)
        following = {task.key: order[(i + 1) % len(order)] for i, task in enumerate(order)}
        groups = []
        for task in tasks:
            found = [
                replace(
                    given_trace(asked, "reply", author, model.chat, limit, i, cut), tags=frozenset({"axioms", kind})
                )
                for i, (kind, asked) in enumerate(_asked(task, following[task.key]))
            ]
            groups.append(Group(task, found))
        return groups

    return Rollout(
        name="by_axioms",
        call=call,
        whole=True,  # a question gets the reply of the next one
        reads=frozenset({"task:prompt", "given:chosen", "given:rejected"}),
        writes=names("tokens", ("task", author)) | names("tag", "axioms"),
    )


def _asked(task: Task, other: Task) -> list[tuple[str, Task]]:
    """The kinds of reply that there are for a task: each as a task whose column "reply" has it."""

    def reply(text: object, evidence: object = None) -> Task:
        asked = task if evidence is None else conditioned(task, GROUNDED.format(evidence))
        return replace(asked, given={"reply": str(text)})

    chosen, evidence = task.given["chosen"], task.given.get("evidence")
    found = [("useful", reply(chosen)), ("useless", reply(task.given["rejected"]))]
    if other.key != task.key and str(other.given["chosen"]) != str(chosen):
        found.append(("elsewhere", reply(other.given["chosen"])))
    found += [(kind, reply(task.given[column])) for kind, column in OPTIONAL.items() if task.given.get(column)]
    if evidence:
        found.append(("grounded", reply(chosen, evidence)))
        if other.given.get("evidence") and other.key != task.key:
            found.append(("misgrounded", reply(chosen, other.given["evidence"])))
    return found
