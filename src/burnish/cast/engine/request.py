"""What is asked of an engine, and what comes back."""

from __future__ import annotations

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
