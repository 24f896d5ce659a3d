"""Replies followed by what a tool says of them and a place for the score (Themis, arXiv 2310.01045)."""

from __future__ import annotations

from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.rollout.given import given_trace
from burnish.score.written import calculated, with_tools


@supplies("tokens:tool", "tokens:score")
def checked(*columns: str, author: str = "demo", reader: str = "judge") -> Rollout:
    """One trace per column: the reply, its tool trace and the token of the score.

    The tool trace is the column NAME_trace of the data ("chosen_trace"), where it has one, else the calculator's.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        model, settings = step.models[reader], step.settings
        limit, cut = min(model.context, settings.max_length or model.context), settings.on_long == "truncate"
        groups = []
        for task in tasks:
            traces = []
            for i, column in enumerate(columns):
                said = task.given.get(f"{column}_trace")
                said = calculated(str(task.given[column])) if said is None else str(said)
                reply = given_trace(task, column, author, model.chat, limit, i, cut)
                traces.append(with_tools(reply, said, model.chat, limit))
            groups.append(Group(task, traces))
        return groups

    return Rollout(
        name=f"checked({', '.join(columns)})",
        call=call,
        reads=frozenset({"task:prompt"}) | names("given", columns),
        writes=names("tokens", ("task", author, "tool", "score")) | names("tag", columns),
    )
