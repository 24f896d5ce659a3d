"""Instructions rewritten by sequences of operations, and answers of other models to prompts."""

from __future__ import annotations

from burnish.core.messages import prompt_shown
from burnish.core.step import Step
from burnish.core.types import Task, Trace, Turn
from burnish.judges.question import Question
from burnish.models.chat import Chat
from burnish.score.judges.judge import Judge


def token_limit(step: Step, reader: str) -> int:
    model = step.models[reader]
    return min(model.context, step.settings.max_length or model.context)


def answers_of(who: Judge, tasks: list[Task], step: Step) -> list[str | None]:
    """What a model or an endpoint replies to each task; None where it gives no answer."""
    asked = [Question("answer/1", prompt_shown(task.prompt)) for task in tasks]
    return [None if answer.failed else answer.text for (answer,) in who.ask(asked, step)]


def answered_trace(task: Task, text: str | None, author: str, step: Step, index: int) -> Trace | None:
    """A task with a reply as `author` wrote it, cut to the longest reply and to the context; None without a reply."""
    if text is None:
        return None
    chat: Chat = step.models["policy"].chat
    prompt = Turn(chat.prompt(task), "task")
    room = min(step.settings.max_new_tokens, token_limit(step, "policy") - len(prompt))
    if room < 1:
        return None
    return Trace((prompt, Turn(chat.reply(text)[:room], author, parent=prompt)), index, tags=frozenset({author}))
