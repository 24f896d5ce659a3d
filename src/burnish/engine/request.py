"""Requests to an engine, the samples that it returns, and the prompts that requests share."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from torch import Tensor

from burnish.core.types import Allowed, Canvas, Chain

Stopped = Literal["stop", "length", "enough"]


class Constraint(Protocol):
    """What holds a reply to a language (serve/constraint.py)."""

    def mask(self, tokens: Sequence[int]) -> Tensor:
        """[V] bool, on the CPU: the tokens that may follow these, of the reply; one at least."""
        ...


@dataclass(frozen=True)
class Request:
    """One reply to sample: after `prompt`, with noise keyed by `key`.

    temperature 0 is greedy. top_k 0, top_p 1, min_p 0 and repetition_penalty 1 are off. The log-probs that come back
    are those of the whole distribution at the request's temperature (at 1 when greedy), before top_k, top_p, min_p and
    penalty; or (as_drawn) those of the distribution that is drawn from, and the tokens that it allows come with them.
    stop: strings that end a reply as the stop tokens do; the reply keeps the token that completes one.
    said: how many of the prompt's last tokens are the reply's own beginning, written by an earlier call.
    input_keys: what the model reads at each token of the prompt, as a number, where it is more than the token (an
    image).
    Requests share a prompt, its keys and values if their input keys are equal; None: the tokens are the keys.
    presence, frequency: taken off the logits of tokens that the reply has already; frequency once for each time.
    constraint: the reply is drawn among the tokens that it allows. told: called with the tokens so far, step by step,
    by engines in this process.
    after: the number of an earlier request of the same call, with whose prompt and sample the prompt begins (another
    turn of an episode): an engine that still has their keys and values computes only the rest of the prompt.
    """

    prompt: Tensor
    key: int
    max_new: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    as_drawn: bool = False
    stop: tuple[str, ...] = ()
    said: int = 0
    input_keys: Tensor | None = None
    after: int | None = None
    presence: float = 0.0
    frequency: float = 0.0
    constraint: Constraint | None = None
    told: Callable[[Tensor], None] | None = None

    @property
    def truncated(self) -> bool:
        """Whether it samples from a part of the vocabulary."""
        return bool(self.top_k) or self.top_p < 1 or self.min_p > 0 or self.constraint is not None

    @property
    def shaped(self) -> bool:
        """Whether what it is drawn from depends on the tokens of the reply."""
        return self.constraint is not None or self.presence != 0 or self.frequency != 0

    @property
    def filtered(self) -> bool:
        """Whether it samples from another distribution than softmax(logits / temperature)."""
        return self.truncated or self.shaped or self.repetition_penalty != 1


class Sample(NamedTuple):
    """A sampled reply: its tokens (the stop token included), their log-probs, and why it ended.

    stopped: "stop" (a stop token or string), "length" (its limit), or "enough" (a stop rule ended its group).
    allowed: the tokens that each was drawn among, where the request asked for them
    canvas: how they came about, where they were not written from left to right
    """

    tokens: Tensor
    logp: Tensor
    stopped: Stopped
    allowed: Allowed | None = None
    canvas: Canvas | Chain | None = None

    def first(self, n: int) -> Sample:
        """The sample cut to its first n tokens."""
        allowed = None if self.allowed is None else self.allowed.first(n)
        return Sample(self.tokens[:n], self.logp[:n], self.stopped, allowed, self.canvas)


OnSample = Callable[[int, Sample], None]  # the number of a request, and its sample
StopRule = Callable[[list[Sample]], bool]  # the finished samples of one prompt -> whether the others may end


class Prompt:
    """A prompt: the requests that begin with it, its place in the pool while they need it, and the logits after it."""

    def __init__(self, tokens: Tensor, input_keys: Tensor | None = None) -> None:
        self.tokens, self.input_keys, self.start = tokens, input_keys, -1
        self.requests: list[int] = []  # their numbers
        self.needed = 0  # how many have not ended
        self.longest = 0  # how long their replies may become
        self.length = tokens.shape[0]  # len() of a tensor is slow enough to be seen
        self.after: list[Tensor] = []
        self.shift = 0  # of the positions after it (forward/sight.py)
        self.number = -1  # activation-cache id of its last token; -1: not cached
        self.finished: list[Sample] = []


def prompts_of(requests: Sequence[Request]) -> tuple[list[Prompt], list[Prompt]]:
    """The different prompts, told apart by their input keys, in order of appearance; and that of each request."""
    by_tensor: dict[int, Prompt] = {}  # most requests share the tensor itself: no need to compare its numbers
    by_keys: dict[bytes, Prompt] = {}
    of = []
    for i, request in enumerate(requests):
        read = request.prompt if request.input_keys is None else request.input_keys
        prompt = by_tensor.get(id(read))
        if prompt is None:
            words = read.numpy().tobytes()
            prompt = by_keys.get(words) or Prompt(request.prompt, request.input_keys)
            by_tensor[id(read)] = by_keys[words] = prompt
        prompt.requests.append(i)
        of.append(prompt)
    return list(by_keys.values()), of


def limits_of(requests: Sequence[Request], prompts: Sequence[Prompt], room_after: Callable[[int], int]) -> list[int]:
    """How many tokens each reply may have; the prompts learn the longest of theirs."""
    limits = [request.max_new for request in requests]
    for prompt in prompts:
        left = room_after(prompt.length)
        for i in prompt.requests:
            limits[i] = min(limits[i], left)
        prompt.longest, prompt.needed = max([limits[i] for i in prompt.requests]), len(prompt.requests)
    return limits


def room_in(context: int, prompt: int) -> int:
    """How many tokens a context holds after a prompt of so many; a prompt that leaves none is refused."""
    if prompt >= context:
        raise ValueError(
            f"a prompt has {prompt} tokens, but the model's context holds {context}: "
            "shorten the prompt or drop such rows from the dataset"
        )
    return context - prompt


def end_of(tokens: Tensor, stop: tuple[str, ...], text: Callable[[Tensor], str]) -> int | None:
    """How many tokens it takes until a stop string is complete; None where none is."""

    def said(k: int) -> bool:
        words = text(tokens[:k])
        return any(word in words for word in stop)

    if not stop or not said(len(tokens)):
        return None
    return bisect_left(range(len(tokens) + 1), True, key=said)
