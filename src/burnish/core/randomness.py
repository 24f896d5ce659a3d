"""Counter-based random numbers: every draw is a hash of its purpose, without any state.

A sample's noise is keyed by (seed, step, task key, sample index, position), so it does not depend on the rest of the
batch, on the number of workers, or on a restart.
"""

from __future__ import annotations

from functools import lru_cache

import numpy
import torch
from torch import Tensor

from burnish.core.seeds import key_of as key_of
from burnish.core.seeds import rng as rng

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer
_MIX1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_WORD = 2**64 - 1
_MIX2 = -7723592293110705685  # 0x94D049BB133111EB


def generator(*what: object) -> numpy.random.Generator:
    """A NumPy generator seeded by its purpose, for whole arrays: resampling and permutations."""
    return numpy.random.default_rng(key_of(*what) % 2**63)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of signed 64-bit integers (torch's >> is arithmetic: it copies the sign bit)."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def uniform(keys: Tensor, counters: Tensor) -> Tensor:
    """One float64 in [0, 1) per (key, counter): the splitmix64 finaliser of key + counter * golden ratio.

    keys and counters are int64 tensors of one shape (or broadcastable).
    """
    x = keys + counters * _GOLDEN
    x = (x ^ _shift(x, 30)) * _MIX1
    x = (x ^ _shift(x, 27)) * _MIX2
    x = x ^ _shift(x, 31)
    return _shift(x, 11).to(torch.float64) * 2.0**-53


def placed(position: int, n: int, *what: object) -> int:
    """Element `position` of a permutation of range(n), the same one for the same `what`, without building it.

    A Feistel network on the smallest even number of bits that holds n; numbers outside of range(n) are mapped again
    until one is inside. Eight rounds, each adding a hash of one half to the other.
    """
    half = max(1, ((n - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = position >> half, position & mask
        for key in _round_keys(what):
            x = (right ^ key) * 0x9E3779B97F4A7C15 & _WORD
            x = (x ^ (x >> 32)) * 0xBF58476D1CE4E5B9 & _WORD
            left, right = right, left ^ ((x >> 29) & mask)
        position = left << half | right
        if position < n:
            return position


@lru_cache(maxsize=64)
def _round_keys(what: tuple[object, ...]) -> tuple[int, ...]:
    return tuple(key_of("permutation", *what, number) & _WORD for number in range(8))


def shuffled(n: int, *what: object) -> list[int]:
    """A permutation of range(n), the same one for the same `what`."""
    order = list(range(n))
    rng(*what).shuffle(order)
    return order
