"""Questions that a model answers with one of a few words: by the log-probs of the words, nothing is sampled."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from burnish.core.step import Step
from burnish.core.types import Task, Trace, Turn
from burnish.models.chat import Chat


def word_logps(questions: Sequence[str], words: Sequence[str], who: str, step: Step) -> list[list[float]]:
    """log p(word | question) under `who`, for each question and word, as it would begin a reply.

    A question that does not fit into the context loses its beginning.
    """
    model = step.models[who]
    said = [model.chat.reply(word) for word in words]
    said = [tokens[: len(tokens) - len(model.chat.closing)] for tokens in said]
    traces = []
    for question in questions:
        prompt = asked(question, model.chat, model.context - max(len(tokens) for tokens in said))
        traces += [Trace((prompt, Turn(tokens, "demo", parent=prompt))) for tokens in said]
    masks = [torch.arange(len(trace)) >= len(trace.turns[0]) for trace in traces]
    found = model.streams(traces, masks, {"logp"}, step.settings.token_budget, 1.0)
    sums = [float(one["logp"][mask].sum()) for one, mask in zip(found, masks, strict=True)]
    return [sums[i : i + len(words)] for i in range(0, len(sums), len(words))]


def asked(question: str, chat: Chat, room: int) -> Turn:
    """A question as a prompt of at most `room` tokens: what is too long loses its beginning."""
    return Turn(chat.prompt(Task("question", question, {}, "question"))[-room:], "task")


def told(turns: Sequence[Turn], chat: Chat) -> str:
    """A conversation as lines of text, each with who said it."""
    who = {"task": "Task", "env": "Environment"}
    return "\n".join(f"{who.get(turn.author, 'Agent')}: {chat.text(turn.tokens).strip()}" for turn in turns)
