"""What an engine in another process and its worker write to each other, one line of JSON each.

The worker may run on another Python, without burnish: it imports this file for type checking alone.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class Settings(TypedDict):
    """What a sampler is started with. kv_gib: memory for keys and values; eager: without compiling."""

    folder: str
    stops: list[int]
    context: int
    dtype: str
    kv_gib: float | None
    threads: int
    eager: bool


class Wanted(TypedDict):
    """A reply to sample (engine/request.py)."""

    id: int
    prompt: list[int]
    key: int
    seed: int
    stop: list[str]
    max_new: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    as_drawn: bool


class Sampled(TypedDict):
    """A reply. allowed: the tokens that each was drawn among, end to end, and how many there were."""

    id: int
    tokens: list[int]
    logp: list[float]
    stopped: Literal["stop", "length", "enough"]
    allowed: NotRequired[tuple[list[int], list[int]]]


class Order(TypedDict):
    """What a worker is asked: `requests` to sample, a `folder` to load weights from, or `rows` to score."""

    do: Literal["sample", "load", "score"]
    number: NotRequired[int]
    requests: NotRequired[list[Wanted]]
    folder: NotRequired[str]
    rows: NotRequired[list[list[int]]]


class Line(TypedDict, total=False):
    """A sign of life, a sample, or the end of order `number`: what was done, or an error."""

    beat: int
    sample: Sampled
    done: Any
    error: str
    number: int
