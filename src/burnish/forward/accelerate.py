"""The one lookup of the optional package `burnish.kernels`: no other code outside that package imports it.

Every call has a plain torch implementation beside the question. A method of `Kernels` that returns None means that no
kernel fits the given tensors or model, and the caller computes the same in torch.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from burnish.forward.packing import Packed
    from burnish.forward.runner import MasterGradients, ModelRunner

REGISTRY = "burnish.kernels.registry"


class LogProbKernels(Protocol):
    """Log-probs and entropies in one pass over logits [N, V], and their gradient (forward/logprob.py)."""

    def from_logits(
        self, logits: Tensor, chosen: Tensor, factor: float, lse: Tensor, logp: Tensor, entropy: Tensor, wanted: bool, /
    ) -> None:
        """Write log-probs of `chosen` under softmax(logits * factor), their log-sum-exp and, if wanted,
        the entropies.
        """
        ...

    def d_logits(
        self,
        logits: Tensor,
        chosen: Tensor,
        factor: float,
        lse: Tensor,
        entropy: Tensor,
        grad: Tensor,
        grad_entropy: Tensor | None,
        dtype: torch.dtype,
        /,
    ) -> Tensor:
        """d total / d logits in `dtype`."""
        ...


@dataclass(frozen=True)
class CpuLibrary:
    """A library of C kernels: its hash, and what it was built by and for. note: why it is not in the
    cache, or nothing.
    """

    sha256: str
    compiler: str
    version: str
    flags: str
    features: str
    folder: Path
    note: str = ""


class Kernels(Protocol):
    """What `burnish.kernels.registry` offers to model loading, forward passes and sampling."""

    def load(self, path: Path) -> tuple[nn.Module, set[str]] | None:
        """The model of a directory in our own modules for a CPU, and the names of the weights that it lacks."""
        ...

    def config(self, path: Path) -> object:
        """The configuration of a directory's model where `load` would take it; else None."""
        ...

    def join_projections(self, module: nn.Module) -> list[tuple[nn.Parameter, list[nn.Parameter]]]:
        """Join projections of one input in place; each joined parameter with the parameters that are
        now views of it.
        """
        ...

    def runner(self, module: nn.Module) -> ModelRunner | None:
        """A faster runner of this module than `TransformersRunner`."""
        ...

    def gpu_runner(
        self, module: nn.Module, exact: bool, recomputes: bool, gradients: MasterGradients | None
    ) -> ModelRunner:
        """The runner of a module on a GPU.

        exact       sampler and trainer must agree in every bit: sums are taken in a fixed order
        recomputes  activations are recomputed in the backward pass, by the module itself
        gradients   where a training pass adds up its gradients, if it may be captured in a CUDA graph
        """
        ...

    def packed_attention(
        self, q: Tensor, k: Tensor, v: Tensor, packed: Packed, scale: float, window: int | None
    ) -> Tensor | None:
        """Attention over a pack (forward/cpu_attention.py says what it computes)."""
        ...

    def log_probs(self, states: Tensor) -> LogProbKernels | None:
        """Kernels for a head that reads these hidden states."""
        ...

    def choose(
        self, logits: Tensor, factor: Tensor, keys: Tensor, positions: Tensor, greedy: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        """Sampled tokens and their log-probs (engine/sampling.py)."""
        ...

    def logp_of(self, logits: Tensor, factor: Tensor, token: Tensor) -> Tensor | None:
        """Log-probs of given tokens (engine/sampling.py)."""
        ...

    def nf4_dense(self, packed: Tensor, scales: Tensor, out: Tensor) -> None:
        """Write four-bit weights on a GPU as dense ones (forward/nf4.py)."""
        ...

    def cpu_library(self) -> CpuLibrary | str:
        """The library of C kernels, built if it has to be; or why there can be none on this machine."""
        ...


@cache
def kernels() -> Kernels | None:
    """The kernels, or None where the package is not installed."""
    try:
        registry: Kernels = importlib.import_module(REGISTRY).registry
    except ModuleNotFoundError as error:
        if error.name in (REGISTRY, REGISTRY.rpartition(".")[0]):  # not a module that the kernels themselves need
            return None
        raise
    return registry


def cpu_library() -> CpuLibrary | str:
    """The library of C kernels that this process computes with; or why there is none."""
    library = kernels()
    return "the package burnish.kernels is not installed" if library is None else library.cpu_library()
