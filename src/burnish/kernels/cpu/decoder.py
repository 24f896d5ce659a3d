"""Prefill and decode steps of a native model in the C kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.engine.batch import RunningBatch
from burnish.engine.kv_cache import KVCache, Plan
from burnish.engine.layouts import Prefill, Roots
from burnish.engine.model_decoder import ModelDecoder
from burnish.forward.packing import Packed, send
from burnish.forward.runner import ModelRunner
from burnish.kernels.cpu.activation_cache import ActivationCache, CachedPrefill
from burnish.kernels.cpu.c_decode import Addresses, addresses_of, logits_of_all
from burnish.kernels.cpu.prefix_reuse import Reuse, new_tokens
from burnish.kernels.cpu.runner import LlamaRunner


def panel_of(runner: ModelRunner) -> int:
    """How many keys the C kernels read at once; 0 where they do not run the model."""
    return runner.llama.model.panel if isinstance(runner, LlamaRunner) else 0


class CDecoder(ModelDecoder):
    """One native model.

    memory  where activations are kept for the trainer; None: they are not
    """

    def __init__(self, runner: LlamaRunner, plan: Plan) -> None:
        super().__init__(runner, KVCache(plan, panel_of(runner)))
        self.llama = runner.llama
        self.memory: ActivationCache | None = None
        self._addresses: Addresses | None = None
        self.cache.on_change = self._forget_addresses

    def _forget_addresses(self) -> None:
        self._addresses = None

    @property
    def addresses(self) -> Addresses:
        """Where weights, keys and values lie; nothing of it moves while rows are decoded."""
        if self._addresses is None:
            self._addresses = addresses_of(self.llama, self.cache)
        return self._addresses

    @torch.no_grad()
    def states(self, rows: Packed, places: Tensor, positions: Tensor | None = None) -> Tensor:
        assert positions is None, "a model in our kernels has the positions of its pack"
        places, shape = send(places, self.device), self.llama.model.kernels
        new = None if self.memory is None or shape is None else new_tokens(self.memory, rows)
        if new is not None and shape is not None:
            self.ends = new.numbers[torch.from_numpy(rows.ends())].tolist()
            return Reuse(self.llama.model, shape, new).states(rows, Prefill(rows, self.cache, places).keep)
        first = None if self.memory is None else self.memory.take(len(rows.tokens))
        if self.memory is None or first is None:
            self.ends = []
            return super().states(rows, places)
        layout = CachedPrefill(rows, self.cache, places, first)
        states = self.runner.hidden(rows.tokens[None], rows.positions[None], layout)[0]
        self.ends = self.memory.note_rows(rows.input_keys.numpy(), rows.starts, first)
        return states

    def step(self, batch: RunningBatch, at: slice, roots: Roots | None) -> Tensor:
        return logits_of_all(self.llama, self.addresses, batch, at.stop, roots)

    def remember(self, tokens: int) -> None:
        """Keep the activations of so many tokens, at most, for the trainer, if the model can use them."""
        inner = self.llama.model
        self.memory = inner.remembered if inner.remembers(tokens) else None
