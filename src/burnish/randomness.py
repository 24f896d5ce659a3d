"""Counter-based randomness: every draw is a hash of what it is for, never of what happened before.

A sample's noise is keyed by (seed, step, task key, sample index, position), so it does not depend on what else is in
the batch, on how many workers there are, or on a restart. Nothing here has state.
"""

from __future__ import annotations

import hashlib
import random

import numpy
import torch
from torch import Tensor

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer
_MIX1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX2 = -7723592293110705685  # 0x94D049BB133111EB


def key_of(*what: object) -> int:
    """A signed 64-bit key of any printable things: the same things always give the same key."""
    text = "\x1f".join(map(str, what))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def rng(*what: object) -> random.Random:
    """A small generator for drawing several numbers for one purpose."""
    return random.Random(key_of(*what))


def generator(*what: object) -> numpy.random.Generator:
    """The same for whole arrays of numbers: resampling and permutations."""
    return numpy.random.default_rng(key_of(*what) % 2**63)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of signed 64-bit integers (torch's own shift drags the sign bit along)."""
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


def shuffled(n: int, *what: object) -> list[int]:
    """A permutation of range(n), the same one for the same `what`."""
    order = list(range(n))
    rng(*what).shuffle(order)
    return order
