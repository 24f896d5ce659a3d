"""Texts as vectors without a model, and their cosines."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Sequence

import numpy as np

from burnish.score.maths.repetition import ngrams

SIZE = 512
Vector = np.ndarray


def embedded(text: str, *, size: int = SIZE) -> Vector:
    """A unit vector [size] of the words, word pairs and character triples of a text; zeros for an empty one.

    Each feature adds 1 + log(count) at a place given by a hash (the hashing trick), with a sign from the hash, so that
    collisions cancel on average. Equal texts have cosine 1, texts without a common feature about 0.
    """
    words = text.split()
    features = Counter(["w " + word for word in words])
    features.update("p " + " ".join(map(str, pair)) for pair in ngrams(words, 2))
    features.update("c " + text[i : i + 3] for i in range(len(text) - 2))
    vector = np.zeros(size)
    for feature, count in features.items():
        code = zlib.crc32(feature.encode("utf-8", "surrogatepass"))
        vector[code % size] += (1 + math.log(count)) * (1.0 if code >> 31 else -1.0)
    return unit(vector)


def unit(vector: Vector) -> Vector:
    """The vector divided by its norm; itself where it is 0."""
    norm = float(np.linalg.norm(vector))
    return vector / norm if norm else vector


def cosines(vectors: Sequence[Vector]) -> np.ndarray:
    """[n, n]: the cosine of every two vectors."""
    rows = np.stack([unit(vector) for vector in vectors])
    found = rows @ rows.T
    np.fill_diagonal(found, 1.0)  # a text equals itself, an empty one too
    clipped: np.ndarray = np.clip(found, -1.0, 1.0)
    return clipped


def crowding(vectors: Sequence[Vector]) -> list[float]:
    """sum over j of max(0, cos(e_i, e_j)), itself included: 1 for a vector unlike all others, n for n copies."""
    return [float(total) for total in np.maximum(cosines(vectors), 0.0).sum(axis=1)]
