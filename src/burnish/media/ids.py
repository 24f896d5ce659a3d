"""Media ids: the tokens of a picture in a row of token ids, int64 numbers far beyond every vocabulary.

    id = 2^62 + key * 8192 + position

`key` (49 bits) is a hash of the picture's bytes and of the processor that reads it, `position` the number of the token
inside the picture. Equal pictures have equal ids and different pictures have different ids, so whatever compares
tokens (packs, the KV cache, text caches, stored records) tells pictures apart without knowing what a picture is. Only
the embedding asks further (forward/sight.py): an id below 2^62 is looked up in the table, another in the picture's
features.

A picture's tokens may have text between them (the tags of its tiles), but never another picture's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # graders, which judge tasks with pictures, do not import torch
    from torch import Tensor

Ids = npt.NDArray[np.int64]

FIRST = 1 << 62
MOST = 8192  # tokens of one picture
KEYS = 1 << 49


class Run(NamedTuple):
    """A picture in a row: its key, and the places of its tokens."""

    key: int
    at: Ids


class CutPicture(ValueError):
    """A row that ends inside a picture, or has its tokens in another order."""


def ids_of(key: int, count: int) -> Ids:
    """[count]: the tokens of a picture."""
    if not 0 < count <= MOST:
        raise ValueError(
            f"a picture becomes {count:,} tokens, and {MOST:,} is the most; lower the largest size in the model's "
            "preprocessor_config.json"
        )
    ids: Ids = np.arange(count, dtype=np.int64) + (FIRST + key * MOST)
    return ids


def has_media(ids: Ids) -> bool:
    """Whether a picture is among these tokens."""
    return bool(ids.max(initial=0) >= FIRST)


def media_in(tokens: Tensor) -> bool:
    """The same of a tensor."""
    return bool(tokens.numel()) and int(tokens.max()) >= FIRST


def split(ids: Ids) -> tuple[Ids, Ids]:
    """The keys of media ids, and the positions inside their pictures."""
    inside = ids - FIRST
    return inside // MOST, inside % MOST


def runs_of(row: Ids) -> list[Run]:
    """The pictures of a row, in order. Their tokens stand in order, from the first one on."""
    at = np.flatnonzero(row >= FIRST)
    if not len(at):
        return []
    keys, positions = split(row[at])
    begins = np.flatnonzero(positions == 0)
    if not len(begins) or begins[0]:
        raise CutPicture("a row begins inside a picture; leave it out, or raise the limit on its length")
    runs = []
    for begin, end in zip(begins, [*begins[1:], len(at)], strict=True):
        same = (keys[begin:end] == keys[begin]) & (positions[begin:end] == np.arange(end - begin))
        if not same.all():
            raise CutPicture("the tokens of a picture are not in order; a row was cut inside a picture")
        runs.append(Run(int(keys[begin]), at[begin:end]))
    return runs


def without_media(row: Ids) -> Ids:
    """The tokens that are text."""
    return row[row < FIRST]
