"""Prefill and decode steps of one model on a GPU; prefill of packs of one size is a CUDA graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

import burnish.kernels.triton.decode_attention  # noqa: F401 - makes its operators known to torch
from burnish.engine.batch import RunningBatch, StepRows
from burnish.engine.kept_rows import Continuation
from burnish.engine.kv_cache import KVCache, Plan
from burnish.engine.layouts import Roots
from burnish.engine.model_decoder import ModelDecoder
from burnish.forward.module import decoder
from burnish.forward.packing import NONE, Packed, TooShort, pack, send
from burnish.forward.prefix_tree import Numbers
from burnish.forward.runner import ModelRunner
from burnish.kernels.cuda_graphs.extension import Extension
from burnish.kernels.triton.decode_layout import GpuDecode
from burnish.kernels.triton.decoder import FusedDecoder
from burnish.kernels.triton.kv_write import bring
from burnish.kernels.triton.runner import TritonRunner
from burnish.media.ids import has_media


class GpuCache(KVCache):
    """A KV cache whose layers are looked up outside compiled code: torch.compile would compile each layer by itself."""

    at = torch.compiler.disable(KVCache.at)
    layer = torch.compiler.disable(KVCache.layer)


class GpuDecoder(ModelDecoder):
    """One model. fused: its decoder in our kernels, for decode steps; None: transformers' modules."""

    def __init__(self, runner: ModelRunner, plan: Plan) -> None:
        super().__init__(runner, GpuCache(plan, transposed=False))
        self.fused = runner.fused if isinstance(runner, TritonRunner) else FusedDecoder.of(decoder(runner.module))
        self.asked: dict[int, int] = {}  # how often packs of each size were prefilled
        self.graphs: dict[tuple[int, bool], PrefillGraph] = {}
        self.extension = Extension(self)
        with torch.compiler.set_stance("force_eager"):  # every layer gets its tensors before anything is compiled
            self.prefill([torch.zeros(1, dtype=torch.long)], np.zeros(1, dtype=np.int64))

    def _prefill(
        self, prompts: list[Numbers], places: Numbers, input_keys: list[Numbers] | None = None
    ) -> tuple[Tensor, Packed]:
        seen = any(map(has_media, prompts))  # a tower is not captured
        return (None if seen else self._replayed(prompts, places)) or super()._prefill(prompts, places, input_keys)

    def _replayed(self, prompts: list[Numbers], places: Numbers) -> tuple[Tensor, Packed] | None:
        """The same by a CUDA graph, once packs of about this size have been prefilled before."""
        size = max(1024, 1 << (len(places) - 1).bit_length())
        self.asked[size] = self.asked.get(size, 0) + 1
        if self.device.type != "cuda" or self.asked[size] < 2 or not self.cache.layers:
            return None
        try:
            rows = pack(prompts, None, self.device, size)
        except TooShort:
            return None
        filled = np.full(size, self.cache.pool)  # padding goes to the scratch place of the pool
        filled[: len(places)] = places
        if (size, rows.long) not in self.graphs:
            self.graphs[size, rows.long] = PrefillGraph(self, rows)
        return self.graphs[size, rows.long].replay(rows, send(torch.from_numpy(filled), self.device)), rows

    def extend(self, rows: Sequence[Continuation]) -> Tensor:
        """[rows, V]: the logits after rows that go on, whose new keys and values are written to their slots."""
        return self.runner.logits(self.extension.states(rows))

    def bring(self, batch: RunningBatch, at: slice) -> None:
        """Copy what the prompts of entering rows have beyond whole blocks of keys into the rows' slots."""
        root, length, slot = batch.root[at], batch.root_length[at], batch.slot[at]
        for layer in self.cache.layers.values():
            bring(layer.own_k, layer.own_v, layer.pool_k, layer.pool_v, root, length, slot)

    def step(self, batch: RunningBatch, at: slice, roots: Roots | None) -> Tensor:
        return self.runner.logits(self.newest(batch, at))

    def newest(self, batch: StepRows, at: slice) -> Tensor:
        """[n, H]: the hidden states of the newest tokens of the rows of a slice, whose keys and values are written."""
        if self.fused is not None:
            return self.fused.step(batch, at, self.cache)
        count, length = batch.count[at], batch.root_length[at]
        layout = GpuDecode(self.cache, count, batch.root[at], length, batch.slot[at])
        positions = count - 1 + length
        return self.runner.hidden(batch.last[at][:, None], positions[:, None], layout)[:, 0]


class PrefillGraph:
    """Prefill of packs of one size by a CUDA graph: launching the kernels one by one would take longer than running
    them.
    """

    def __init__(self, owner: GpuDecoder, rows: Packed) -> None:
        assert rows.table is not None
        self.tokens, self.positions, self.table = rows.tokens.clone(), rows.positions.clone(), rows.table.clone()
        self.places = torch.full_like(rows.tokens, owner.cache.pool)
        layout = Packed(self.tokens, self.positions, rows.bound, lambda: NONE, NONE, table=self.table)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # compilers and libraries set themselves up before the capture
            for _ in range(2):
                owner.states(layout, self.places)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.states = owner.states(layout, self.places)

    def replay(self, rows: Packed, places: Tensor) -> Tensor:
        """The hidden states of a pack, whose keys and values go to `places` of the pool."""
        assert rows.table is not None
        self.tokens.copy_(rows.tokens)
        self.positions.copy_(rows.positions)
        self.table.copy_(rows.table)
        self.places.copy_(places)
        self.graph.replay()
        return self.states
