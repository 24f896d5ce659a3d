"""Replies that came with the task: nothing is sampled."""

from __future__ import annotations

from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.models.chat import Chat
from burnish.models.encode_batch import encode_together


@supplies("tokens:*", "tag:*")
def given(*columns: str, author: str = "demo", reader: str = "policy") -> Rollout:
    """One trace per named column of the task ("demo"; or "chosen", "rejected"), written by `author`.

    Each trace carries the tag of its column. `reader` is the model whose tokenizer and template render it.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        model, settings = step.models[reader], step.settings
        limit = min(model.context, settings.max_length or model.context)
        cut = settings.on_long == "truncate"
        encode_together(model.chat, tasks, columns)
        return [
            Group(
                task, [given_trace(task, column, author, model.chat, limit, i, cut) for i, column in enumerate(columns)]
            )
            for task in tasks
        ]

    return Rollout(
        name=f"given({', '.join(columns)})",
        call=call,
        ahead=True,
        reads=frozenset({"task:prompt"}) | names("given", columns),
        writes=names("tokens", ("task", author)) | names("tag", columns),
    )


def given_trace(task: Task, column: str, author: str, chat: Chat, limit: int, index: int, cut: bool = False) -> Trace:
    """A task's prompt, and the reply that came with it in `column`, as `author` wrote it.

    cut: a reply that does not fit in `limit` tokens is cut off; otherwise it is an error
    """
    prompt = Turn(chat.prompt(task), "task")
    reply = Turn(chat.reply(str(task.given[column])), author, parent=prompt)
    if len(prompt) + len(reply) > limit and cut and len(prompt) < limit:
        reply = reply.first(limit - len(prompt))
    if len(prompt) + len(reply) > limit:
        raise ValueError(
            f"task {task.key[:60]!r}: its prompt and {column!r} have {len(prompt) + len(reply)} tokens, but at most "
            f"{limit} fit; shorten them, or use --on-long truncate"
        )
    return Trace((prompt, reply), index, tags=frozenset({column}))
