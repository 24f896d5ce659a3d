"""The native Llama, Qwen2 and Qwen3 (kernels/cpu/llama.py) as a model runner."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.forward.runner import HeadMatrix, TransformersRunner
from burnish.kernels.cpu.adopted import ScoringModel
from burnish.kernels.cpu.llama import Llama
from burnish.kernels.cpu.weight_layout import steady

NO_KERNELS = (
    "--exact needs burnish's own kernels here, because torch's products depend on how many rows there are: a C "
    "compiler "
    "(`burnish check` says whether there is one), and heads whose width is a multiple of 32; leave it out, and "
    "mismatch/logp says how far sampler and trainer are apart"
)


class NativeRunner(TransformersRunner):
    """A native decoder, whose weights are laid out for the kernels."""

    accelerated = True
    has_cache = False

    def __init__(self, native: Llama | ScoringModel) -> None:
        super().__init__(native)
        self.native = native

    def weights_moved(self) -> None:
        self.native.weights_moved()


class ScorerRunner(NativeRunner):
    """A native decoder under a scoring head."""


class LlamaRunner(NativeRunner):
    """A native language model: its head's matmul has the bits of the sampler's."""

    def __init__(self, llama: Llama) -> None:
        super().__init__(llama)
        self.llama = llama

    @torch.no_grad()
    def logits(self, states: Tensor) -> Tensor:
        return self.llama.logits(states)

    def head(self) -> HeadMatrix | None:
        return HeadMatrix(self.llama.lm_head.weight, 1.0, self.llama.logits)

    def why_not_exact(self) -> str | None:
        return None if self.llama.model.kernels is not None or steady() else NO_KERNELS
