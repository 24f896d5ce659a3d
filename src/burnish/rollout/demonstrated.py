"""Demonstrations as traces: whole conversations, of which some messages are trained on."""

from __future__ import annotations

from burnish.core.messages import as_messages
from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.media.ids import media_in
from burnish.models.chat import Chat
from burnish.models.conversation import Piece, conversation_pieces, message_weights, text_pieces
from burnish.models.encode_batch import encode_together

NAME = "demonstrated"


@supplies("tokens:*", "tag:*")
def demonstrated(*, author: str = "demo", reader: str = "policy") -> Rollout:
    """What a task demonstrates: its prompt and its reply, a conversation with several replies, or a plain text.

    What is trained on (the run's --train-on, and `train` and `weight` of messages) is by `author`; the beginning of
    the conversation is by "task", what follows between trained messages by "env". Rows longer than the run's
    --max-length are cut.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        model, settings = step.models[reader], step.settings
        limit = min(model.context, settings.max_length or model.context)
        encode_together(model.chat, [task for task in tasks if _one_reply(task, settings.train_on)], ["demo"])
        return [
            Group(
                task,
                [
                    demonstration_trace(cut_pieces(pieces, limit), author, i)
                    for i, pieces in enumerate(demonstration(task, model.chat, settings.train_on))
                ],
            )
            for task in tasks
        ]

    return Rollout(
        name=NAME,
        call=call,
        ahead=True,
        reads=frozenset({"task:prompt", "given:demo"}),
        writes=names("tokens", ("task", "env", author)) | names("tag", "demo"),
    )


def demonstration(task: Task, chat: Chat, train_on: str) -> list[list[Piece]]:
    """The pieces of each sample that a task demonstrates."""
    given = task.given
    if task.prompt == "" and "text" in given:
        return [text_pieces(chat, str(given["text"]))]
    whole = train_on == "everything"
    messages = given.get("messages")
    if messages is None and whole:
        messages = [*as_messages(task.prompt), {"role": "assistant", "content": str(given["demo"])}]
    if messages is not None:
        weights = message_weights(messages, train_on)
        return conversation_pieces(chat, messages, weights, given.get("tools"), headers=whole)
    return [[Piece(chat.prompt(task), 0.0), Piece(chat.reply(str(given["demo"])), 1.0)]]


def _one_reply(task: Task, train_on: str) -> bool:
    """Whether a task demonstrates a reply to its prompt, and not a text or a conversation."""
    return task.prompt != "" and "messages" not in task.given and train_on != "everything"


def cut_pieces(pieces: list[Piece], limit: int) -> list[Piece]:
    """The first `limit` tokens, without what follows the last trained one."""
    kept: list[Piece] = []
    for piece in pieces:
        if limit <= 0:
            break
        if len(piece.tokens) > limit and media_in(piece.tokens):  # nothing is cut inside a picture
            break
        kept.append(piece if len(piece.tokens) <= limit else Piece(piece.tokens[:limit], piece.weight))
        limit -= len(piece.tokens)
    while kept and not kept[-1].weight:
        kept.pop()
    return kept


def demonstration_trace(pieces: list[Piece], author: str, index: int) -> Trace:
    """A trace of pieces; where their weights differ, they are in its note, one for each turn."""
    turns: list[Turn] = []
    for piece in pieces:
        who = author if piece.weight else "env" if turns else "task"
        turns.append(Turn(piece.tokens, who, parent=turns[-1] if turns else None))
    weights = [piece.weight for piece in pieces]
    note = {"weights": weights} if set(weights) - {0.0, 1.0} else {}
    return Trace(tuple(turns), index, tags=frozenset({"demo"}), note=note)
