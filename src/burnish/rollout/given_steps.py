"""Replies that came with the task as a list of steps."""

from __future__ import annotations

from itertools import accumulate

from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.models.chat import Chat
from burnish.score.segments import token_ends


@supplies("tokens:demo", "note:ends")
def given_steps(*, separator: str = "\n", author: str = "demo", reader: str = "policy") -> Rollout:
    """One trace per task: the prompt and its "steps" joined by the separator, written by `author`.

    A task's own "separator" takes precedence. note["ends"] holds the positions in the trace at which the steps end: a
    step ends with the separator behind it, the last one with the tokens that close the reply. Steps that do not fit
    into the context are cut off with --on-long truncate, and have no end.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        model, settings = step.models[reader], step.settings
        limit = min(model.context, settings.max_length or model.context)
        cut = settings.on_long == "truncate"
        return [Group(task, [_trace(task, separator, author, model.chat, limit, cut)]) for task in tasks]

    return Rollout(
        name="given_steps",
        call=call,
        reads=frozenset({"task:prompt", "given:steps"}),
        writes=names("tokens", ("task", author)) | {"note:ends"},
    )


def joined(steps: list[str], separator: str) -> tuple[str, list[int]]:
    """The text of a reply, and the offsets at which its steps end."""
    whole = [*(step + separator for step in steps[:-1]), steps[-1]]
    return "".join(whole), list(accumulate(map(len, whole)))


def _trace(task: Task, separator: str, author: str, chat: Chat, limit: int, cut: bool) -> Trace:
    steps = task.given["steps"]
    if not steps:
        raise ValueError(f"task {task.key[:60]!r} has no steps; remove the row")
    text, offsets = joined(steps, task.given.get("separator", separator))
    prompt = Turn(chat.prompt(task), "task")
    reply = Turn(chat.reply(text), author, parent=prompt)
    ends = [len(prompt) + end for end in token_ends(reply.tokens, offsets, chat)]
    if len(ends) < len(steps):
        raise ValueError(
            f"task {task.key[:60]!r}: one token ends two of its steps, so they cannot have labels of their own; write "
            "steps that are not empty, with a separator that is a token of its own"
        )
    room = limit - len(prompt)
    if len(reply) > room:
        if not cut or room < 1:
            raise ValueError(
                f"task {task.key[:60]!r}: its prompt and steps have {len(prompt) + len(reply)} tokens, but at most "
                f"{limit} fit; shorten them, or use --on-long truncate"
            )
        reply, ends = reply.first(room), [end for end in ends if end < limit]
    return Trace((prompt, reply), 0, tags=frozenset({"steps"}), note={"ends": ends})
