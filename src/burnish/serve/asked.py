"""What a request asks for, and what it is answered, whatever protocol it came in."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from burnish.core.messages import Message
from burnish.tool_calls import AUTO_READER, Reader

MOST_TOP = 20  # likeliest tokens that a request may ask for


class BadRequest(ValueError):
    """A request that cannot be answered: why, in one sentence."""


@dataclass(frozen=True)
class Json:
    """A reply must be JSON: an object, or a value by a schema."""

    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Asked:
    """A request for replies. None: the server's own setting.

    n            how many replies; top: how many of the likeliest tokens to tell of at each place
    tool_choice  auto, none, required, or the name of the tool that must be called; one_call: at most one
    schema       what the reply must be
    prompt       tokens or text in place of messages; echo: the answer begins with it
    """

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stream: bool = False
    logprobs: bool = False
    model: str = ""
    n: int = 1
    stop: tuple[str, ...] = ()
    seed: int | None = None
    presence: float = 0.0
    frequency: float = 0.0
    top: int = 0
    tool_choice: str = "auto"
    one_call: bool = False
    schema: Json | None = None
    stream_usage: bool = False
    prompt: str | tuple[int, ...] | None = None
    echo: bool = False
    top_k: int | None = None


@dataclass(frozen=True)
class Answered:
    """A reply: its text, why it stopped, its tokens and their log-probs, and the tokens of its prompt.

    reader  how the model's replies are read; index: which of the n replies it is; stopped_by: the stop string
    tops    for each token the likeliest ones with their log-probs; told of the prompt, too: prompt_logps
    """

    text: str
    stopped: str
    tokens: list[int]
    logps: list[float]
    prompt: list[int]
    pieces: list[str]
    reader: Reader = AUTO_READER
    index: int = 0
    tops: list[list[tuple[str, float]]] | None = None
    prompt_logps: list[float | None] | None = None
    prompt_pieces: list[str] | None = None
    stopped_by: str | None = None
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")


@dataclass(frozen=True)
class Piece:
    """A reply so far, while it is being written."""

    text: str
    reader: Reader = AUTO_READER
    index: int = 0


@dataclass(frozen=True)
class Failure:
    """Why a question has no answer: the HTTP status, and a sentence."""

    status: int
    why: str


def failure(error: Exception) -> Failure:
    """What an exception says to the client whose request raised it; a ValueError's sentence was written for it."""
    if isinstance(error, ValueError) and not isinstance(error, ArithmeticError):  # not NaN in the model's numbers
        return Failure(400, str(error))
    return Failure(500, f"the request could not be answered ({type(error).__name__}: {str(error)[:300]})")


def until_stop(text: str, stops: tuple[str, ...]) -> tuple[str, str | None]:
    """A text up to the first stop string in it, and that string."""
    places = [(at, stop) for stop in stops if (at := text.find(stop)) >= 0]
    if not places:
        return text, None
    at, stop = min(places)
    return text[:at], stop
