"""A model that reads for the engine: prompts into its store, then one token per row at a time."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from burnish.cast import attention
from burnish.cast.engine import store
from burnish.cast.engine.decoding import OnCpu, OnGpu, Reading, Roots
from burnish.cast.engine.rows import Rows
from burnish.cast.engine.store import Plan, Store
from burnish.cast.forward import decoder, logits_at
from burnish.cast.native.llama import Llama
from burnish.cast.packing import pack, send


class Reader:
    """One model, and the store of what it has read."""

    def __init__(self, model: nn.Module, plan: Plan) -> None:
        self.model, self.store = model, Store(plan.slots, plan.capacity, plan.pool)
        self.device = next(model.parameters()).device
        self.mask = attention.no_mask(self.device)
        if store.on_gpu(self.device):
            import burnish.cast.engine.kernels  # noqa: F401 - makes its operators known to torch

            with torch.compiler.set_stance("force_eager"):  # every layer gets its tensors before anything is compiled
                self.read([torch.zeros(1, dtype=torch.long)], torch.zeros(1, dtype=torch.long))

    def read(self, prompts: list[Tensor], places: Tensor) -> Tensor:
        """[prompts, V]: the logits after each prompt, whose keys and values are kept at `places` of the pool."""
        rows = pack(prompts, None, self.device)
        layout = Reading(rows, self.store, send(places, self.device))
        states = self._states(rows.tokens[None], rows.positions[None], layout)[0]
        return logits_at(self.model, states[rows.roots.q[1:].long() - 1])

    def next(self, rows: Rows, n: int, roots: Roots | None) -> Tensor:
        """[n, V]: the logits after the newest token of the first n rows."""
        count, root, length = rows.count[:n], rows.root[:n], rows.root_length[:n]
        own = rows.base[:n] + count - 1
        if store.on_gpu(self.device):
            layout: OnGpu | OnCpu = OnGpu(count, root, length, rows.slot[:n])
        else:
            layout = OnCpu(own, length, roots)
            if isinstance(self.model, Llama):
                return self.model.next_logits(rows.last[:n], own + length, layout)
        states = self._states(rows.last[:n, None], (own + length)[:, None], layout)
        return logits_at(self.model, states[:, 0])

    def _states(self, tokens: Tensor, positions: Tensor, layout: attention.Layout) -> Tensor:
        out = decoder(self.model)(
            input_ids=tokens, position_ids=positions, attention_mask=self.mask, layout=layout, use_cache=False
        )
        return out.last_hidden_state  # type: ignore[no-any-return]
