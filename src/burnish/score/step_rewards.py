"""From the scores of a reply's steps to rewards of its steps, to rewards of its tokens, or to one number.

All functions are pure; s_1 .. s_K are the scores of K steps in order. Forms are composed from the left:
`chained(clipped(0.8), deltas)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

Form = Callable[[Sequence[float]], list[float]]


def as_they_are(scores: Sequence[float]) -> list[float]:
    """r_k = s_k: the sum grows with the number of steps, so long replies of good steps earn more."""
    return list(scores)


def clipped(limit: float) -> Form:
    """r_k = min(s_k - limit, 0): a step above the limit earns nothing, one below it loses (arXiv 2410.15115)."""
    return lambda scores: [min(score - limit, 0.0) for score in scores]


def deltas(scores: Sequence[float]) -> list[float]:
    """r_k = s_k - s_{k+1}, the last keeps s_K (arXiv 2410.15115).

    The undiscounted return from step k on is s_k whatever follows, so further steps earn nothing.
    """
    return [one - following for one, following in pairwise([*scores, 0.0])]


def gains(scores: Sequence[float]) -> list[float]:
    """r_k = s_k - s_{k-1}, s_0 = 0: the change that step k makes; the sum is s_K (arXiv 2401.16637)."""
    return [one - before for before, one in pairwise([0.0, *scores])]


def per_step(scores: Sequence[float]) -> list[float]:
    """r_k = s_k / K: the sum is the mean score, whatever the number of steps (arXiv 2410.17621)."""
    return [score / len(scores) for score in scores]


def before_answer(form: Form, answer: int = 1) -> Form:
    """The form of all steps but the last `answer` ones, which are the answer and earn 0."""

    def split(scores: Sequence[float]) -> list[float]:
        process = max(0, len(scores) - answer)
        return [*form(scores[:process]), *[0.0] * (len(scores) - process)]

    return split


def chained(*forms: Form) -> Form:
    """These forms, one after the other."""

    def apply(scores: Sequence[float]) -> list[float]:
        found = list(scores)
        for form in forms:
            found = form(found)
        return found

    return apply


def place(length: int, ends: Sequence[int], rewards: Sequence[float]) -> Tensor:
    """[length]: each step's reward at the token that ends it, NaN at the others."""
    stream = torch.full((length,), math.nan)
    stream[list(ends)] = torch.tensor(list(rewards), dtype=stream.dtype)
    return stream


def place_all(length: int, placed: Sequence[tuple[Sequence[int], Sequence[float]]]) -> Tensor:
    """[length]: the sum of several models' rewards at the tokens that end their steps, NaN where none ends one."""
    streams = torch.stack([place(length, ends, rewards) for ends, rewards in placed])
    return streams.nansum(0).where(~streams.isnan().all(0), math.nan)


def _product(chances: Sequence[float]) -> float:
    """In log space, where many small chances do not vanish."""
    return math.exp(sum(math.log(max(chance, 1e-300)) for chance in chances))


AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "prod": _product,
    "last": lambda chances: chances[-1],
    "mean": lambda chances: sum(chances) / len(chances),
}
