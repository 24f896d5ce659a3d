"""What is asked of an engine, and what comes back."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Request:
    """One reply to sample: after `prompt`, with noise keyed by `key`.

    temperature 0 is greedy. top_k 0, top_p 1 and min_p 0 are off. The log-probs that come back are those of the whole
    distribution at the request's temperature (at 1 when greedy), before top_k, top_p and min_p.
    stop: strings that end a reply as the stop tokens do; the reply keeps the token that completes one.
    said: how many of the prompt's last tokens are the reply's own beginning, written by an earlier call.
    """

    prompt: Tensor
    key: int
    max_new: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    stop: tuple[str, ...] = ()
    said: int = 0


@dataclass(frozen=True)
class Sample:
    """A sampled reply: its tokens (the stop token included), their log-probs, and why it ended.

    stopped: "stop" (a stop token or string), "length" (its limit), or "enough" (its group had enough without it).
    """

    tokens: Tensor
    logp: Tensor
    stopped: str


Heard = Callable[[int, Sample], None]  # the number of a request, and its sample
Enough = Callable[[list[Sample]], bool]  # the finished samples of one prompt -> whether the rest may go


class Prompt:
    """A prompt: its place in the pool while requests need it, how many still do, and the logits after it."""

    def __init__(self, tokens: Tensor) -> None:
        self.tokens, self.start, self.needed = tokens, -1, 0
        self.length = tokens.shape[0]  # len() of a tensor is slow enough to be seen
        self.after: list[Tensor] = []
        self.number = -1  # of its last token, where what is computed is kept for the trainer; -1: it is not
        self.finished: list[Sample] = []


def end_of(tokens: Tensor, stop: tuple[str, ...], text: Callable[[Tensor], str]) -> int | None:
    """How many tokens it takes until a stop string is complete; None where none is."""

    def said(k: int) -> bool:
        words = text(tokens[:k])
        return any(word in words for word in stop)

    if not stop or not said(len(tokens)):
        return None
    return bisect_left(range(len(tokens) + 1), True, key=said)
