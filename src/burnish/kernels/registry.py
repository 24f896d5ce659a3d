"""What the kernels offer to the rest of burnish (forward/accelerate.py and engine/protocol.py declare it).

C kernels run on a CPU, built by this machine's compiler. Triton kernels and CUDA graphs run on NVIDIA GPUs; they are
imported when the first one is needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from burnish.engine import kv_cache
from burnish.engine.batch import RunningBatch
from burnish.engine.kv_cache import Plan
from burnish.engine.model_decoder import ModelDecoder
from burnish.engine.protocol import EngineKernels
from burnish.engine.strategy import Call, DecodeStrategy
from burnish.forward.accelerate import CpuLibrary, LogProbKernels
from burnish.forward.packing import Packed
from burnish.forward.runner import MasterGradients, ModelRunner
from burnish.kernels.cpu import build, c_attention, head, llama
from burnish.kernels.cpu.adopted import ScoringModel, adopted
from burnish.kernels.cpu.config import shape_of
from burnish.kernels.cpu.decoder import CDecoder, panel_of
from burnish.kernels.cpu.runner import LlamaRunner, ScorerRunner
from burnish.kernels.cpu.shared_decode import SharedDecodeStrategy


class Registry:
    """Decides for each question whether a kernel fits; None or False: the caller computes it in torch."""

    def load(self, path: Path) -> tuple[nn.Module, set[str]] | None:
        shape = shape_of(path)
        return None if shape is None else llama.load(path, shape)

    def config(self, path: Path) -> Any:
        return shape_of(path)

    def join_projections(self, module: nn.Module) -> list[tuple[nn.Parameter, list[nn.Parameter]]]:
        from burnish.kernels.triton.fused_qkv import join_projections

        return [leaf for joint in join_projections(module) for leaf in joint.leaves()]

    def runner(self, module: nn.Module) -> ModelRunner | None:
        if isinstance(module, llama.Llama):
            return LlamaRunner(module)
        if next(module.parameters()).is_cuda:
            return self.gpu_runner(module, False, False, None)
        native = adopted(module)
        if native is None:
            return None
        return ScorerRunner(native) if isinstance(native, ScoringModel) else LlamaRunner(native)

    def gpu_runner(
        self, module: nn.Module, exact: bool, recomputes: bool, gradients: MasterGradients | None
    ) -> ModelRunner:
        from burnish.kernels.triton.runner import TritonRunner

        return TritonRunner(module, exact, recomputes, gradients)

    def packed_attention(
        self, q: Tensor, k: Tensor, v: Tensor, packed: Packed, scale: float, window: int | None
    ) -> Tensor | None:
        if packed.table is not None:
            from burnish.kernels.triton import packed_attention

            out: Tensor = packed_attention.attend(q, k, v, packed.table, scale, window or 0)[0]
            return out
        return c_attention.attend(q, k, v, packed, scale) if c_attention.suits(q, v, window) else None

    def log_probs(self, states: Tensor) -> LogProbKernels | None:
        if states.is_cuda:
            from burnish.kernels.triton import logprob

            return logprob
        return head if head.suits(states) else None

    def choose(
        self, logits: Tensor, factor: Tensor, keys: Tensor, positions: Tensor, greedy: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        return head.choose(logits, factor, keys, positions, greedy) if head.suits(logits) else None

    def logp_of(self, logits: Tensor, factor: Tensor, token: Tensor) -> Tensor | None:
        if logits.is_cuda:
            from burnish.kernels.triton import logprob

            lse, logp, entropy = (torch.empty_like(factor) for _ in range(3))
            logprob.from_logits((logits * factor[:, None]).contiguous(), token, 1.0, lse, logp, entropy, False)
            return logp
        return head.logp_of(logits, factor, token) if head.suits(logits) else None

    def nf4_dense(self, packed: Tensor, scales: Tensor, out: Tensor) -> None:
        from burnish.kernels.triton import nf4

        nf4.dense(packed, scales, out)

    def cpu_library(self) -> CpuLibrary | str:
        found = build.made_by()
        if isinstance(found, str):
            return found
        made = found.recipe
        return CpuLibrary(
            found.sha256, made.compiler, made.version, made.flags, made.features, found.path.parent, found.note
        )

    def decoder(self, runner: ModelRunner, plan: Plan) -> ModelDecoder | None:
        return CDecoder(runner, plan) if isinstance(runner, LlamaRunner) and panel_of(runner) else None

    def strategy(self, call: Call) -> DecodeStrategy | None:
        if kv_cache.on_gpu(call.device):
            from burnish.kernels.cuda_graphs.strategy import GraphStrategy

            return GraphStrategy(call)
        return SharedDecodeStrategy(call) if all(map(panel_of, call.runners)) else None

    def sample(self, batch: RunningBatch, at: slice, logits: Tensor) -> bool:
        if logits.is_cuda:
            from burnish.kernels.triton import sample

            sample.sample(batch, at, logits.contiguous())
        return logits.is_cuda


registry: EngineKernels = Registry()
