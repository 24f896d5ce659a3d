"""A whole conversation as tokens, cut where trained messages begin and end.

The template renders the conversation once. Where a message begins and ends in that text is found from the texts of the
messages before it, and of those up to it (prefixes.py): each must be a beginning of the whole. Every piece is encoded
by itself, so a reply has the tokens that it would have as a sample after the same prompt. A template that changes
earlier messages when later ones follow (it strips the thoughts of all replies but the last), or strips the thoughts of
every reply, has no such cuts: then every trained reply is a sample of its own, after the messages before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from burnish.core.messages import Message, pictures_of, text_of
from burnish.models.chat import Chat
from burnish.models.prefixes import Prefixes
from burnish.models.text_cache import Piece as Piece
from burnish.models.watched_messages import Rendered

TRAIN_ON = ("all", "last", "everything")  # all replies, the last reply, every token


def message_weights(messages: Sequence[Mapping[str, Any]], train_on: str) -> list[float]:
    """What the tokens of each message count: its own `train` and `weight`, else by the rule."""
    replies = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    ruled = {"all": set(replies), "last": set(replies[-1:]), "everything": set(range(len(messages)))}[train_on]
    weights = []
    for i, message in enumerate(messages):
        trained = message.get("train", "weight" in message or i in ruled)
        weights.append(float(message.get("weight", 1.0)) if trained else 0.0)
    return weights


def conversation_pieces(
    chat: Chat, messages: Sequence[Message], weights: Sequence[float], tools: object = None, *, headers: bool = False
) -> list[list[Piece]]:
    """The samples of a conversation: usually one; several where the template changes earlier messages.

    headers: what the template writes before a reply belongs to it, too
    """
    if not any(weights):
        return []
    if pictures_of(messages):  # their tokens depend on files
        samples = _encoded(chat, messages, weights, tools, headers)
        trained = [i for i, weight in enumerate(weights) if weight]
        ends = trained if len(samples) == len(trained) else trained[-1:]  # the last message of each sample
        return [_seen(chat, pieces, messages[: end + 1]) for pieces, end in zip(samples, ends, strict=True)]
    return chat.samples_once(
        ("conversation", list(messages), list(weights), tools, headers),
        lambda: _encoded(chat, messages, weights, tools, headers),
    )


def _seen(chat: Chat, pieces: list[Piece], messages: Sequence[Message]) -> list[Piece]:
    """The pieces with the pictures of these messages, which count nothing."""
    cut = chat.pictures.pieces([piece.tokens for piece in pieces], messages)
    return [
        Piece(tokens, piece.weight if text else 0.0)
        for piece, parts in zip(pieces, cut, strict=True)
        for tokens, text in parts
        if len(tokens)
    ]


def _encoded(
    chat: Chat, messages: Sequence[Message], weights: Sequence[float], tools: object, headers: bool
) -> list[list[Piece]]:
    bare = [{key: value for key, value in m.items() if key not in ("train", "weight")} for m in messages]
    if not chat.templated:
        return [_first_not_trained(_untemplated(chat, bare, weights))]
    renderer = _Renderer(chat, bare, tools)
    if headers and len(set(weights)) == 1:
        return [_first_not_trained(renderer.whole(weights[0]))]
    cuts = [renderer.cut(i, headers) for i, weight in enumerate(weights) if weight]
    trained = [weight for weight in weights if weight]
    whole = renderer.prefixes.whole
    if all(cut is not None and whole.agrees(cut.text, cut.end) for cut in cuts):
        return [_first_not_trained(renderer.pieces(whole, [c for c in cuts if c is not None], trained))]
    return [
        _first_not_trained(renderer.alone(i, cut, weight, headers))
        for (i, weight), cut in zip(((i, w) for i, w in enumerate(weights) if w), cuts, strict=True)
    ]


def text_pieces(chat: Chat, text: str) -> list[Piece]:
    """A text without roles, trained on from its second token to its end."""

    def encode() -> list[list[Piece]]:
        tokens = torch.cat([chat.plain(text), torch.tensor([chat.tokenizer.eos_token_id])])
        return [_first_not_trained([Piece(tokens, 1.0)])]

    return chat.samples_once(("text", text), encode)[0]


@dataclass(frozen=True)
class _Cut:
    """A message in the rendered text: it begins at `start` and ends at `end` of `text`. closed: by its end of turn."""

    text: Rendered
    start: int
    end: int
    closed: bool


class _Renderer:
    """A conversation and its template, in which spelled control tokens are marked (models/control.py)."""

    def __init__(self, chat: Chat, messages: list[dict[str, object]], tools: object) -> None:
        self.chat = chat
        self.messages, self.tools, self.marked = chat.prepared(messages, tools)
        self.opened = chat.start.opened
        self.prefixes = Prefixes(chat.template, self.messages, self.tools)

    def cut(self, i: int, headers: bool) -> _Cut | None:
        """Where message i begins and ends; None where the messages before it do not stay as they were, or a part of
        the reply is not written (its thoughts)."""
        reply = self.messages[i]["role"] == "assistant"
        before = self.prefixes.text(i, generation=reply and not headers)
        upto = self.prefixes.text(i + 1, generation=False)
        if not upto.startswith(before):
            return None
        if not reply:
            return _Cut(upto, len(before), len(upto), True)
        own = upto.part(max(0, len(before) - len(self.opened)))
        if _without_spaces(text_of(self.messages[i])) not in _without_spaces(own):
            return None
        end, token = self.chat.turn_end
        if token and (at := upto.part(len(before)).rfind(token)) >= 0:
            return _Cut(upto, len(before), len(before) + at + len(token), True)
        if end and self.prefixes.whole.startswith(upto.followed_by(end)):  # closed only where a message follows
            return _Cut(upto.followed_by(end), len(before), len(upto) + len(end), True)
        last = self.chat.after_last
        ends = last and upto.part(max(0, len(upto) - len(last))) == last
        return _Cut(upto, len(before), len(upto) - (len(last) if ends else 0), False)

    def pieces(self, whole: Rendered, cuts: list[_Cut], weights: list[float]) -> list[Piece]:
        """The text between the cuts, and what they hold."""
        texts: list[Piece] = []
        end = 0
        for cut, weight in zip(cuts, weights, strict=True):
            if cut.start > end:
                lead = self.chat.turn_end[0] if end else ""
                texts.append(Piece(self.encode(whole.part(end, cut.start), lead), 0.0))
            texts.append(Piece(self.said(cut), weight))
            end = cut.end
        return texts

    def whole(self, weight: float) -> list[Piece]:
        """All of the conversation, up to the end of its last message."""
        last, text = len(self.messages) - 1, self.prefixes.whole
        cut = self.cut(last, headers=True) or _Cut(text, 0, len(text), True)
        return [Piece(self.said(replace(cut, start=0)), weight)]

    def said(self, cut: _Cut) -> Tensor:
        """The tokens of a message, closed."""
        tokens = self.encode(cut.text.part(cut.start, cut.end), self.chat.lead if cut.start else "")
        return tokens if cut.closed else torch.cat([tokens, self.chat.closing])

    def alone(self, i: int, cut: _Cut | None, weight: float, headers: bool) -> list[Piece]:
        """Message i as a sample of its own, after the messages before it."""
        if cut is not None:
            return self.pieces(cut.text, [cut], [weight])
        before = self.encode(self.prefixes.text(i, generation=not headers).part(0), "")
        return [Piece(before, 0.0), Piece(self.chat.reply(text_of(self.messages[i])), weight)]

    def encode(self, text: str, lead: str) -> Tensor:
        """The tokens that a text has after `lead`."""
        return self.chat.encode_rendered(text, lead, self.marked)


def _without_spaces(text: str) -> str:
    """A text as templates keep it: they may change the space between the parts of a reply."""
    return "".join(text.split())


def _untemplated(chat: Chat, messages: list[dict[str, object]], weights: Sequence[float]) -> list[Piece]:
    """Messages line by line, replies closed by eos, as prompts without a template are."""
    first = next(i for i, weight in enumerate(weights) if weight)
    pieces = []
    if first:
        pieces.append(Piece(chat.plain(chat.pictures.lines(messages[:first]) + "\n"), 0.0))
    for message, weight in zip(messages[first:], weights[first:], strict=True):
        reply = message["role"] == "assistant"
        pieces.append(Piece(chat.reply(text_of(message)) if reply else chat.between([message]), weight))
    while not pieces[-1].weight:
        pieces.pop()
    return pieces


def _first_not_trained(pieces: list[Piece]) -> list[Piece]:
    """The first token follows nothing, so it cannot be trained on: it is a piece of its own."""
    if not pieces[0].weight or not len(pieces[0].tokens):
        return pieces
    first = pieces[0]
    return [Piece(first.tokens[:1], 0.0), Piece(first.tokens[1:], first.weight), *pieces[1:]]
