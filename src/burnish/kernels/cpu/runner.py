"""The native Llama, Qwen2 and Qwen3 (kernels/cpu/llama.py) as a model runner."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.forward.runner import HeadMatrix, TransformersRunner
from burnish.kernels.cpu.adopted import Scorer
from burnish.kernels.cpu.llama import Llama
from burnish.kernels.cpu.weight_layout import steady

NO_KERNELS = (
    "--exact needs burnish's own kernels here, because torch's products depend on how many rows there are: a C "
    "compiler "
    "(`burnish check` says whether there is one), and heads whose width is a multiple of 32; leave it out, and "
    "mismatch/logp says how far sampler and trainer are apart"
)


class ScorerRunner(TransformersRunner):
    """A native decoder under a scoring head."""

    accelerated = True
    has_cache = False

    def __init__(self, scorer: Scorer) -> None:
        super().__init__(scorer)
        self.scorer = scorer

    def weights_moved(self) -> None:
        self.scorer.weights_moved()


class LlamaRunner(TransformersRunner):
    """A native model: its modules compute the hidden states, its head's matmul has the bits of the sampler's."""

    accelerated = True
    has_cache = False

    def __init__(self, llama: Llama) -> None:
        super().__init__(llama)
        self.llama = llama

    @torch.no_grad()
    def logits(self, states: Tensor) -> Tensor:
        return self.llama.logits(states)

    def head(self) -> HeadMatrix | None:
        return HeadMatrix(self.llama.lm_head.weight, 1.0, self.llama.logits)

    def weights_moved(self) -> None:
        self.llama.weights_moved()

    def why_not_exact(self) -> str | None:
        return None if self.llama.model.kernels is not None or steady() else NO_KERNELS
