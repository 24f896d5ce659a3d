"""The protocols of the endpoint, by the path of their requests: how one is read, answered whole, and streamed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from burnish.serve import completions, messages, responses
from burnish.serve import protocol as chat
from burnish.serve.asked import Answered, Asked, Piece
from burnish.serve.responses import Kept

Items = Iterable[Piece | Answered]


class Client(Protocol):
    """What a protocol knows of a session."""

    kept: Kept


@dataclass(frozen=True)
class Spoken:
    """One protocol."""

    read: Callable[[bytes, Client], Asked]
    whole: Callable[[Sequence[Answered], Asked, Client], dict[str, Any]]
    stream: Callable[[Items, Asked, Client], Iterator[bytes]]


def _lines(events: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """Events without names, and the word that ends them."""
    for event in events:
        yield b"data: " + json.dumps(event).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


def _named(events: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """Events by the name of their type."""
    for event in events:
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


PROTOCOLS: Mapping[str, Spoken] = {
    "chat/completions": Spoken(
        lambda body, client: chat.read_request(body),
        lambda answers, asked, client: chat.completion(answers, asked),
        lambda items, asked, client: _lines(chat.chunks(items, asked)),
    ),
    "completions": Spoken(
        lambda body, client: completions.read_request(body),
        lambda answers, asked, client: completions.completion(answers, asked),
        lambda items, asked, client: _lines(completions.chunks(items, asked)),
    ),
    "responses": Spoken(
        lambda body, client: responses.read_request(body, client.kept),
        lambda answers, asked, client: responses.response(answers, asked, client.kept),
        lambda items, asked, client: _named(responses.events(items, asked, client.kept)),
    ),
    "messages": Spoken(
        lambda body, client: messages.read_request(body),
        lambda answers, asked, client: messages.message(answers, asked),
        lambda items, asked, client: _named(messages.events(items, asked)),
    ),
}
