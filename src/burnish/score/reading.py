"""How a scoring model reads the tokens of another model: where its score of a whole trace is, and whether it can."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from burnish.core.step import Step
from burnish.core.task import Task
from burnish.core.types import Trace, Turn
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
    if reader.chat.written(PROBE).tolist() != writer.written(PROBE).tolist():
        raise ValueError(
            f"the model {model!r} has another tokenizer than the {author}, whose tokens it reads; pass one that was "
            f"trained from the {author}'s model"
        )
    if not reader.chat.assumed and reader.chat.prompt(ASKED).tolist() != writer.prompt(ASKED).tolist():
        reader.warnings.append(
            f"the model {model!r} has another chat template than the {author}, and reads prompts in the form of the "
            f"{author}'s; --chat-template FILE gives all models the same one"
        )
