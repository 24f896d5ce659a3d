"""Constrained decoding: of a model's tokens, those after which a reply can still become JSON by a schema.

The engine draws among them (engine/request.py), and the tokens that it drew among are kept with the reply, so that a
trainer's log-probs are of the same distribution.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from burnish.engine.request import Constraint
from burnish.models.detokenizer import REPLACEMENT
from burnish.serve.asked import Asked
from burnish.serve.json_grammar import OBJECT, REFUSED, Grammar, State, after, after_text, closure, in_string

if TYPE_CHECKING:
    from burnish.models.chat import Chat

KEPT = 1024  # masks of states that are kept for one vocabulary and grammar
END = ""  # key of a trie under which the tokens that end there stand


class Spelled:
    """The texts of a vocabulary's tokens, as trees of characters: those that can stand inside of a string, and others.

    Tokens that are a part of a character, and special tokens, have no text of their own: they are never allowed.
    """

    def __init__(self, chat: Chat) -> None:
        pieces = chat.spelling.pieces
        if not len(pieces):
            raise ValueError(
                "replies cannot be held to a JSON schema: this tokenizer's texts are not those of its tokens end to "
                "end; leave response_format out"
            )
        self.size, self.stops = len(pieces), [stop for stop in chat.stops if stop < len(pieces)]
        self.pieces: list[str] = pieces.tolist()
        self.plain: dict[object, object] = {}
        self.others: dict[object, object] = {}
        inside: list[int] = []
        for token, piece in enumerate(self.pieces):
            if not piece or REPLACEMENT in piece or token in chat.stops:
                continue
            plain = all(letter >= " " and letter not in '"\\\x7f' for letter in piece)
            inside += [token] if plain else []
            _put(self.plain if plain else self.others, piece, token)
        self.inside = torch.tensor(inside)

    def tokens(self, tree: dict[object, object], state: State) -> Iterator[int]:
        """The tokens of a tree that may come in a state."""
        open_: list[tuple[dict[object, object], State]] = [(tree, state)]
        while open_:
            node, here = open_.pop()
            for letter, below in node.items():
                if letter == END:
                    assert isinstance(below, list)
                    yield from below
                elif isinstance(below, dict) and (there := after(here, str(letter))):
                    open_.append((below, there))


_SPELLED: WeakKeyDictionary[Chat, Spelled] = WeakKeyDictionary()


class JsonConstraint:
    """What may come next in one reply. start: the state of the grammar at its beginning."""

    def __init__(self, spelled: Spelled, start: State, masks: dict[State, Tensor]) -> None:
        self.spelled, self.start, self._masks = spelled, start, masks
        self._read: list[int] = []
        self._state = start

    def mask(self, tokens: Sequence[int]) -> Tensor:
        """[vocabulary] bool: the tokens that may follow these, of the reply."""
        self._read_on(tokens)
        mask = self._masks.get(self._state)
        if mask is None:
            if len(self._masks) >= KEPT:
                self._masks.clear()
            mask = self._masks[self._state] = self._made(self._state)
        return mask

    def ended(self, tokens: Sequence[int]) -> bool:
        """Whether these tokens are a whole text, after which nothing may come."""
        self._read_on(tokens)
        return self._state == {None}

    def _read_on(self, tokens: Sequence[int]) -> None:
        known = len(self._read)
        if list(tokens[:known]) != self._read:  # another attempt at the same reply
            known, self._state = 0, self.start
        for token in tokens[known:]:
            self._state = after_text(self._state, self.spelled.pieces[token] if token < self.spelled.size else "")
        self._read = list(tokens)

    def _made(self, state: State) -> Tensor:
        mask = torch.zeros(self.spelled.size, dtype=torch.bool)
        if in_string(state):
            mask[self.spelled.inside] = True
        else:
            mask[list(self.spelled.tokens(self.spelled.plain, state))] = True
        mask[list(self.spelled.tokens(self.spelled.others, state))] = True
        if None in state or not bool(mask.any()):
            mask[self.spelled.stops] = True
        return mask


class Framed:
    """A constraint between tokens that stand before and after it."""

    def __init__(self, inner: JsonConstraint, before: list[int], after: list[int]) -> None:
        self.inner, self.before, self.after = inner, before, after

    def mask(self, tokens: Sequence[int]) -> Tensor:
        """[vocabulary] bool: the tokens that may follow these, of the reply."""
        k, size = len(tokens), self.inner.spelled.size
        if k < len(self.before):
            return _only([self.before[k]], size)
        head = tokens[len(self.before) :]
        for end in range(max(0, len(head) - len(self.after)), len(head) + 1):
            written = len(head) - end  # so many of the tokens after it, if it ends there
            if list(head[end:]) == self.after[:written] and self.inner.ended(head[:end]):
                return _only(self.after[written : written + 1] or self.inner.spelled.stops, size)
        return self.inner.mask(head)


def _only(tokens: Sequence[int], size: int) -> Tensor:
    mask = torch.zeros(max(size, max(tokens) + 1), dtype=torch.bool)
    mask[list(tokens)] = True
    return mask


class Constraints:
    """Constraints by schema, each made once: grammars and masks are shared by the replies of a run."""

    def __init__(self) -> None:
        self._starts: dict[str, tuple[State, dict[State, Tensor]]] = {}

    def of(self, chat: Chat, schema: object) -> JsonConstraint:
        """A constraint for one reply. schema: None for any JSON object."""
        name = json.dumps(schema, sort_keys=True)
        if name not in self._starts:
            if len(self._starts) >= 64:
                self._starts.clear()
            start = closure((OBJECT, None)) if schema is None else Grammar(schema).start
            self._starts[name] = start, {}
        if chat not in _SPELLED:
            _SPELLED[chat] = Spelled(chat)
        return JsonConstraint(_SPELLED[chat], *self._starts[name])

    def of_request(self, chat: Chat, asked: Asked) -> Constraint | None:
        """What a request holds its reply to: a schema, or a call of a tool; None where it does not."""
        if asked.tool_choice in ("auto", "none"):
            return None if asked.schema is None else self.of(chat, asked.schema.schema)
        frame = chat.reader.format.frame
        if frame is None:
            return None  # a format that is no JSON: the model is free to write its call
        before, after_ = (chat.written(text).tolist() if text else [] for text in frame)
        return Framed(self.of(chat, call_schema(asked)), before, after_)


def call_schema(asked: Asked) -> dict[str, object]:
    """The schema of a call of the tool that a request names, or of any of its tools."""
    functions = [one for tool in asked.tools if isinstance(one := tool.get("function"), Mapping)]
    calls: list[object] = []
    defs: dict[str, object] = {}
    for one in functions:
        if asked.tool_choice not in ("required", one.get("name")):
            continue
        given = one.get("parameters")
        parameters = dict(given) if isinstance(given, Mapping) else {}
        defs |= parameters.pop("$defs", {}) if isinstance(parameters.get("$defs"), Mapping) else {}
        parameters.setdefault("type", "object")
        properties = {"name": {"const": one.get("name")}, "arguments": _loosened(parameters)}
        calls.append({"type": "object", "properties": properties, "required": list(properties)})
    return {"anyOf": calls, "$defs": _loosened(defs)}


def _loosened(schema: object) -> object:
    """A schema without what a grammar cannot hold: the tool checks its arguments itself. No properties: none."""
    if isinstance(schema, list):
        return [_loosened(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = {
        key: value if key in ("enum", "const") else _loosened(value)
        for key, value in schema.items()
        if key not in REFUSED
    }
    if kept.get("type") == "object" and kept.get("properties") == {}:
        kept["additionalProperties"] = False
    return kept


def _put(tree: dict[object, object], piece: str, token: int) -> None:
    for letter in piece:
        below = tree.setdefault(letter, {})
        assert isinstance(below, dict)
        tree = below
    ending = tree.setdefault(END, [])
    assert isinstance(ending, list)
    ending.append(token)
