"""A model on a GPU: its layers in Triton kernels where there is a spec of them, training passes by CUDA graphs."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from burnish.forward.attention import Layout
from burnish.forward.module import decoder
from burnish.forward.packing import Packed
from burnish.forward.prefix_tree import Numbers
from burnish.forward.runner import NOT_EXACT, MasterGradients, TransformersRunner
from burnish.forward.sight import read
from burnish.kernels.cuda_graphs.scoring import ScoringGraphs
from burnish.kernels.cuda_graphs.training import TrainingGraphs
from burnish.kernels.triton.decoder import FusedDecoder

# for which it was shown on a GPU (tests/kernels/test_gpu_exact.py, benchmarks/sampler_trainer.py)
SAME_BITS = ("llama", "mistral", "qwen2", "qwen3", "gemma3_text", "qwen3_moe")
_log = logging.getLogger("burnish")


class TritonRunner(TransformersRunner):
    """fused: the decoder in our kernels, for packs and decode steps; None: transformers' modules.

    graphs: captured training passes; None where nothing is trained.
    scoring: captured passes without gradient; None without our kernels.
    """

    def __init__(
        self,
        module: nn.Module,
        exact: bool = False,
        recomputes: bool = False,
        gradients: MasterGradients | None = None,
    ) -> None:
        super().__init__(module)
        self.recomputes = recomputes
        self.fused = self._checked(FusedDecoder.of(decoder(module)))
        self.graphs = None if gradients is None else TrainingGraphs(self, gradients, recomputes)
        self.accelerated = self.fused is not None
        self.scoring = None if self.fused is None else ScoringGraphs(self, self.fused.spec.first.hidden)
        if self.fused is not None:
            self.fused.exact = exact

    def _checked(self, fused: FusedDecoder | None) -> FusedDecoder | None:
        """The fused decoder, if it computes on this GPU what the modules do."""
        if fused is None or not fused.embedding.is_cuda:
            return fused
        from burnish.kernels.triton.verify import trouble

        if why := trouble(fused, self):
            kind = fused.inner.config.model_type
            _log.warning(
                "model type %r runs without burnish's GPU kernels, which is slower: beside its modules %s", kind, why
            )
            return None
        return fused

    def hidden(self, given: Tensor, positions: Tensor, layout: Layout) -> Tensor:
        fused, packed = self.fused, layout.packed
        if fused is None or packed is None or packed.table is None:
            return super().hidden(given, positions, layout)
        x = given[0] if given.ndim == 3 else self._embedded(fused, given)
        return fused.states(x, positions[0], layout, self.recomputes)[None]

    def _embedded(self, fused: FusedDecoder, tokens: Tensor) -> Tensor:
        """[N, H] of tokens [1, N], pictures among them."""
        inputs = read(self.module, tokens)
        assert "deepstack_visual_embeds" not in inputs, "no fused decoder has layers that read pictures"
        vectors = inputs.get("inputs_embeds")
        return fused.embed(tokens[0]) if vectors is None else vectors[0]

    def replay(self, rows: Sequence[Numbers], firsts: list[int] | None) -> tuple[Tensor, Packed] | None:
        graphs = self.graphs if torch.is_grad_enabled() else self.scoring
        return None if graphs is None else graphs.states(rows, firsts)

    def weights_moved(self) -> None:
        super().weights_moved()
        if self.fused is not None:
            self.fused.weights_moved()

    def why_not_exact(self) -> str | None:
        fused = self.fused
        shown = fused is not None and fused.room is None and fused.inner.config.model_type in SAME_BITS
        return None if shown else NOT_EXACT
