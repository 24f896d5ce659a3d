"""How a scoring model reads the tokens of another model: where its score of a whole trace is, and whether it can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from burnish.core.step import Step
from burnish.core.task import Task
from burnish.core.types import Group, Trace, Turn
from burnish.models.chat import Chat
from burnish.models.model import Model

PROBE = "Step 1: 12 + 7 = 19.\nSo the answer is 19."
ASKED = Task("question", PROBE, {}, PROBE)


def as_read(trace: Trace, chat: Chat) -> Trace:
    """The trace with what the scoring model's template writes after the end of a reply (models/scored_end.py)."""
    if chat.tail is None or int(trace.tokens[-1]) != int(chat.closing[-1]):
        return trace
    return Trace((*trace.turns, Turn(chat.tail, "template", parent=trace.turns[-1])))


def last_token(trace: Trace, chat: Chat) -> Tensor:
    """[T] bool: where the score of a trace is read. That is its last token; of a model that pads with that token, the
    last one before it, as transformers has it (models/scored_end.py).
    """
    last = len(trace) - 1
    if chat.padding is not None and int(trace.tokens[-1]) == chat.padding:
        read = (trace.tokens != chat.padding).nonzero()
        last = int(read[-1]) if len(read) else last
    return torch.arange(len(trace)) == last


def end_scores(traces: Sequence[Trace], model: Model, budget: int) -> list[Tensor]:
    """What a model says of each whole trace, without gradient: one number, or [k] of a model with k outputs."""
    read = [as_read(trace, model.chat) for trace in traces]
    masks = [last_token(trace, model.chat) for trace in read]
    found = model.streams(read, masks, {"score"}, budget)
    return [one["score"][mask][0] for one, mask in zip(found, masks, strict=True)]


def require_same_tokens(model: str, author: str, step: Step) -> None:
    """Raise ValueError where a model that reads tokens has another tokenizer than their author: it reads other words.

    Warn where it has another chat template, whose prompts it was trained on. An author that is no model of the run (a
    demonstration) is not compared.
    """
    if author not in step.models.by_name or model == author:
        return
    reader, writer = step.models[model], step.models[author].chat
    if reader.chat.identity == writer.identity:  # a hash that is kept: nothing is encoded in each step
        return
    if not same_tokens(reader.chat, writer):
        raise ValueError(
            f"the model {model!r} has another tokenizer than the {author}, whose tokens it reads; pass one that was "
            f"trained from the {author}'s model"
        )
    if not reader.chat.assumed and reader.chat.prompt(ASKED).tolist() != writer.prompt(ASKED).tolist():
        reader.warnings.append(
            f"the model {model!r} has another chat template than the {author}, and reads prompts in the form of the "
            f"{author}'s; --chat-template FILE gives all models the same one"
        )


def same_tokens(one: Chat, other: Chat) -> bool:
    """Whether two chats write the same words as the same tokens."""
    return one.identity == other.identity or one.written(PROBE).tolist() == other.written(PROBE).tolist()


def in_words_of(model: str, groups: list[Group], author: str, step: Step) -> list[Group]:
    """The groups as a model reads them that scores whole replies: themselves where it has the author's tokens.

    A model with another tokenizer gets the prompt of the task in its own chat template, and the text of the reply in
    its own tokens. That is for traces of one reply; an episode, whose turns an environment wrote in the author's
    template, is refused as `require_same_tokens` does. Scores that are written on the traces are those of the traces.
    """
    writer = step.models.by_name.get(author, step.models.by_name.get("policy"))
    reader = step.models[model]
    if writer is None or model == author or same_tokens(reader.chat, writer.chat):
        require_same_tokens(model, author, step)
        return groups
    if any(len(trace.turns) != 2 for group in groups for trace in group.traces):
        require_same_tokens(model, author, step)
    return [
        replace(group, traces=[_said_again(group.task, trace, writer.chat, reader) for trace in group.traces])
        for group in groups
    ]


def _said_again(task: Task, trace: Trace, chat: Chat, reader: Model) -> Trace:
    prompt = Turn(reader.chat.prompt(task), "task")
    said = Turn(reader.chat.reply(chat.text(trace.turns[1].tokens)), trace.turns[1].author, parent=prompt)
    return replace(trace, turns=(prompt, said.first(max(1, reader.context - len(prompt)))), streams={})
