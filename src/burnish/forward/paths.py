"""Which ways of running a model give the numbers of transformers' own forward, as found when it was loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from torch import nn


@dataclass(frozen=True)
class Paths:
    """What is right for one model, from the fastest path to the slowest.

    packed  rows laid end to end (forward/packing.py)
    padded  rows padded on the right; where not even that is right, one row at a time (forward/plain.py)
    engine  sampling with burnish's engine and KV cache (engine/local.py)
    cached  where the engine is not: sampling with transformers' cache; where that is not right either, without any
    """

    packed: bool = True
    padded: bool = True
    engine: bool = True
    cached: bool = True

    @property
    def training(self) -> str:
        """The name of the path that log-probs for training take."""
        return "packed rows" if self.packed else "padded rows" if self.padded else "one row at a time"

    @property
    def sampling(self) -> str:
        """The name of the path that sampling takes."""
        return "the engine" if self.engine else "transformers' cache" if self.cached else "no cache"


ALL = Paths()
_found: WeakKeyDictionary[nn.Module, Paths] = WeakKeyDictionary()


def note(model: nn.Module, paths: Paths) -> None:
    """Remember what is right for a model (models/path_check.py finds it)."""
    _found[model] = paths


def noted(model: nn.Module) -> Paths | None:
    """What is right for a model; None where it has not been checked."""
    return _found.get(model)


def paths_of(model: nn.Module) -> Paths:
    """What is right for a model; every path where it has not been checked."""
    return _found.get(model, ALL)


@contextmanager
def evaluating(models: Sequence[nn.Module]) -> Iterator[None]:
    """Put models that are in training mode into evaluation mode for a while."""
    training = [model for model in models if model.training]
    for model in training:
        model.eval()
    try:
        yield
    finally:
        for model in training:
            model.train()
