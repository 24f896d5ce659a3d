"""A model that reads for the engine: prompts into its store, then one token per row at a time."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from burnish.cast import attention
from burnish.cast.engine import store
from burnish.cast.engine.decoding import OnCpu, OnGpu, Reading, Roots
from burnish.cast.engine.rows import Rows
from burnish.cast.engine.store import Plan, Store
from burnish.cast.forward import decoder, hidden, logits_at
from burnish.cast.fused import Fused
from burnish.cast.native.llama import Llama
from burnish.cast.native.steps import logits_of_all
from burnish.cast.packing import NONE, Packed, TooShort, pack, send
from burnish.cast.tree import Numbers


def panel_of(model: nn.Module) -> int:
    """How many keys our kernels for a CPU read at once (cast/native); 0 where they do not run the model."""
    return getattr(decoder(model), "panel", 0)


class Reader:
    """One model, and the store of what it has read."""

    def __init__(self, model: nn.Module, plan: Plan) -> None:
        self.model, self.store = model, Store(plan.slots, plan.capacity, plan.pool, panel_of(model))
        self.device = next(model.parameters()).device
        self.fused: Fused | None = None
        self.memory: Any = None  # where what is computed is kept for the trainer (cast/native/remembered.py)
        self.ends: list[int] = []  # of the prompts that were read last: the numbers of their last tokens there
        self.asked: dict[int, int] = {}
        self.recorded: dict[tuple[int, bool], RecordedReading] = {}
        if store.on_gpu(self.device):
            self.fused = getattr(model, "fused", None) or Fused.of(decoder(model))
            import burnish.cast.engine.kernels  # noqa: F401 - makes its operators known to torch

            with torch.compiler.set_stance("force_eager"):  # every layer gets its tensors before anything is compiled
                self.read([torch.zeros(1, dtype=torch.long)], np.zeros(1, dtype=np.int64))

    def read(self, prompts: list[Tensor], places: Numbers) -> Tensor:
        """[prompts, V]: the logits after each prompt, whose keys and values are kept at `places` of the pool."""
        numbers = [prompt.numpy() for prompt in prompts]
        states, rows = self._replayed(numbers, places) or self._read(
            pack(numbers, None, self.device), torch.from_numpy(places)
        )
        last = send(torch.from_numpy(rows.ends()), self.device)
        return logits_at(self.model, states[last])

    def _read(self, rows: Packed, places: Tensor) -> tuple[Tensor, Packed]:
        first = None if self.memory is None else self.memory.take(len(rows.tokens))
        layout = Reading(rows, self.store, send(places, self.device), first)
        states = self._states(rows.tokens[None], rows.positions[None], layout)[0]
        self.ends = [] if first is None else self.memory.note_rows(rows.tokens.numpy(), rows.starts, first)
        return states, rows

    def _replayed(self, prompts: list[Numbers], places: Numbers) -> tuple[Tensor, Packed] | None:
        """The same by a recording, on a GPU, once packs of about this size have been read before."""
        size = max(1024, 1 << (len(places) - 1).bit_length())
        self.asked[size] = self.asked.get(size, 0) + 1
        if self.device.type != "cuda" or self.asked[size] < 2 or not self.store.layers:
            return None
        try:
            rows = pack(prompts, None, self.device, size)
        except TooShort:
            return None
        filled = np.full(size, self.store.pool)  # what nobody asked for goes where nobody looks
        filled[: len(places)] = places
        if (size, rows.long) not in self.recorded:
            self.recorded[size, rows.long] = RecordedReading(self, rows)
        return self.recorded[size, rows.long].replay(rows, send(torch.from_numpy(filled), self.device)), rows

    def remember(self, tokens: int) -> None:
        """On a CPU: what is computed of so many tokens, at most, is kept for the trainer, if the model can use it."""
        inner = decoder(self.model)
        self.memory = inner.remembered if panel_of(self.model) and inner.remembers(tokens) else None  # type: ignore[operator]

    def bring(self, rows: Rows, at: slice) -> None:
        """On a GPU: what the prompts of entering rows have beyond whole blocks of keys goes into the rows' slots."""
        from burnish.cast.engine.placing import bring

        for layer in self.store.layers:
            bring(
                layer.own_k, layer.own_v, layer.pool_k, layer.pool_v, rows.root[at], rows.root_length[at], rows.slot[at]
            )

    def next(self, rows: Rows, at: slice, roots: Roots | None) -> Tensor:
        """[n, V]: the logits after the newest tokens of some rows."""
        if self.fused is not None:
            return logits_at(self.model, self.fused.step(rows, at))
        if self.store.panel:
            return logits_of_all(cast(Llama, self.model), self.store, rows, at.stop, roots)
        count, root, length = rows.count[at], rows.root[at], rows.root_length[at]
        own = rows.base[at] + count - 1
        if store.on_gpu(self.device):
            layout: OnGpu | OnCpu = OnGpu(count, root, length, rows.slot[at])
        else:
            layout = OnCpu(own, length, roots)
        states = self._states(rows.last[at][:, None], (own + length)[:, None], layout)
        return logits_at(self.model, states[:, 0])

    def _states(self, tokens: Tensor, positions: Tensor, layout: attention.Layout) -> Tensor:
        return hidden(self.model, tokens, positions, layout)


class RecordedReading:
    """Packs of one size read by replaying a CUDA graph: launching the kernels would take longer than running them."""

    def __init__(self, reader: Reader, rows: Packed) -> None:
        assert rows.table is not None
        self.inputs = tuple(x.clone() for x in (rows.tokens, rows.positions, rows.table))
        self.places = torch.full_like(rows.tokens, reader.store.pool)
        tokens, positions, table = self.inputs
        layout = Packed(tokens, positions, rows.bound, lambda: NONE, NONE, table=table)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                reader._read(layout, self.places)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.states, _ = reader._read(layout, self.places)

    def replay(self, rows: Packed, places: Tensor) -> Tensor:
        """The hidden states of a pack, whose keys and values go to `places` of the pool."""
        for mine, given in zip(self.inputs, (rows.tokens, rows.positions, rows.table), strict=True):
            mine.copy_(given)  # type: ignore[arg-type]
        self.places.copy_(places)
        self.graph.replay()
        return self.states
