"""Prefill and decode steps of one model for the engine, and its KV cache: the general implementation, on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.engine.batch import RunningBatch
from burnish.engine.kv_cache import KVCache
from burnish.engine.layouts import CpuDecode, Prefill, Roots
from burnish.forward.packing import Packed, pack, send
from burnish.forward.prefix_tree import Numbers
from burnish.forward.runner import ModelRunner
from burnish.forward.sight import sight_of


class ModelDecoder:
    """One model and its KV cache.

    ends  of the prompts that were prefilled last: the activation-cache id of the last token of each; empty without a
          cache
    """

    def __init__(self, runner: ModelRunner, cache: KVCache) -> None:
        self.runner, self.cache = runner, cache
        self.device = next(runner.module.parameters()).device
        self.ends: list[int] = []

    def prefill(self, prompts: list[Tensor], places: Numbers, input_keys: list[Tensor] | None = None) -> Tensor:
        """[prompts, V]: the logits after each prompt, whose keys and values are written to `places` of the pool.

        input_keys: of each prompt, where they are not its tokens (engine/request.py); an activation cache needs them.
        """
        keys = None if input_keys is None else [keys_of_prompt.numpy() for keys_of_prompt in input_keys]
        states, rows = self._prefill([prompt.numpy() for prompt in prompts], places, keys)
        last = send(torch.from_numpy(rows.ends()), self.device)
        return self.runner.logits(states[last])

    def _prefill(
        self, prompts: list[Numbers], places: Numbers, input_keys: list[Numbers] | None = None
    ) -> tuple[Tensor, Packed]:
        """The hidden states of packed prompts, and how they are packed."""
        rows = pack(prompts, None, self.device, input_keys=input_keys)
        sight = sight_of(self.runner.module)
        if sight is None:
            return self.states(rows, torch.from_numpy(places)), rows
        sight.check(prompts)
        positions = sight.in_pack(rows.positions[None], prompts, rows.lines)
        return self.states(rows, torch.from_numpy(places), positions), rows

    def states(self, rows: Packed, places: Tensor, positions: Tensor | None = None) -> Tensor:
        """[N, H]: the hidden states of a pack, whose keys and values are written to `places` of the pool. positions:
        where they are not those of the pack (forward/sight.py).
        """
        layout = Prefill(rows, self.cache, send(places, self.device))
        return self.runner.hidden(rows.tokens[None], rows.positions[None] if positions is None else positions, layout)[
            0
        ]

    def shift(self, prompt: Tensor) -> int:
        """How far the positions of a prompt's reply are from the numbers of its tokens."""
        sight = sight_of(self.runner.module)
        return 0 if sight is None else sight.shift(prompt.numpy())

    def step(self, batch: RunningBatch, at: slice, roots: Roots | None) -> Tensor:
        """[n, V]: the logits after the newest tokens of the rows of a slice."""
        own, length = batch.base[at] + batch.count[at] - 1, batch.root_length[at]
        layout = CpuDecode(self.cache, own, length, roots)
        states = self.runner.hidden(batch.last[at][:, None], (own + length + batch.shift[at])[:, None], layout)
        return self.runner.logits(states[:, 0])

    def remember(self, tokens: int) -> None:
        """Keep the activations of so many tokens, at most, for the trainer: here none are kept."""
