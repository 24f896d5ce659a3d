"""Replies that came with the task: nothing is sampled."""

from __future__ import annotations

from burnish.cast.chat import Chat
from burnish.nouns import Group, Task, Trace, Turn
from burnish.parts import Rollout, names, supplies
from burnish.step import Step


@supplies("tokens:*", "tag:*")
def given(*columns: str, author: str = "demo", reader: str = "policy") -> Rollout:
    """One trace per named column of the task ("demo"; or "chosen", "rejected"), written by `author`.

    Each trace carries the tag of its column. `reader` is the member whose tokenizer and template render it.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        chat = step.cast[reader].chat
        return [
            Group(
                task,
                [
                    given_trace(task, column, author, chat, step.cast[reader].context, i)
                    for i, column in enumerate(columns)
                ],
            )
            for task in tasks
        ]

    return Rollout(
        name=f"given({', '.join(columns)})",
        call=call,
        reads=frozenset({"task:prompt"}) | names("given", columns),
        writes=names("tokens", ("task", author)) | names("tag", columns),
    )


def given_trace(task: Task, column: str, author: str, chat: Chat, context: int, index: int) -> Trace:
    """A task's prompt, and the reply that came with it in `column`, as `author` wrote it."""
    prompt = Turn(chat.prompt(task), "task")
    reply = Turn(chat.reply(str(task.given[column])), author, parent=prompt)
    if len(prompt) + len(reply) > context:
        raise ValueError(
            f"task {task.key[:60]!r}: its prompt and {column!r} have {len(prompt) + len(reply)} tokens, but the model's context "
            f"holds {context}: shorten them or drop such rows from the dataset"
        )
    return Trace((prompt, reply), index, tags=frozenset({column}))
