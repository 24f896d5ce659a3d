"""The embedded engine: it samples with the very weights that are trained, so there is nothing to synchronise.

Batching is continuous: a row that has finished leaves, and the next request takes its slot. Prompts that several
requests share are read once and kept once. The log-prob of every sampled token comes from the pass that sampled it.
Randomness is counter-based: a request's noise depends on its own key and on the position of the token, never on its
neighbours. Memory is planned before the first token: rows wait for room in a budget that is never exceeded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from burnish.cast.blend import Mix
from burnish.cast.chat import Chat
from burnish.cast.engine.request import Enough, Heard, Request, Sample
from burnish.cast.engine.schedule import Schedule
from burnish.cast.engine.store import STEP, Plan, bytes_per_token, default_budget, on_gpu, plan
from burnish.cast.forward import decoder, packable

if TYPE_CHECKING:
    from burnish.cast.engine.graphs import Kept

__all__ = ["Enough", "Heard", "LocalEngine", "Request", "Sample"]

MAX_ROWS = {"cpu": 256, "cuda": 1024}  # rows decoded together


class LocalEngine:
    """Samples replies from a model in this process.

    budget  bytes for keys and values; None takes a share of what is free
    remembers  what is computed is left for a trainer of the same model, on a CPU (cast/native/remembered.py)
    exact   a log-prob has the bits that the trainer finds, also (on a CPU without our kernels) where rows share a long prompt
    """

    def __init__(
        self,
        model: nn.Module,
        chat: Chat,
        context: int,
        budget: int | None = None,
        exact: bool = False,
        remembers: bool = False,
    ) -> None:
        self.model, self.chat, self.context, self.budget, self.exact = model, chat, context, budget, exact
        self.remembers = remembers
        self.kept: Kept | None = None

    @torch.no_grad()
    def generate(
        self,
        requests: list[Request],
        others: Sequence[nn.Module] = (),
        mix: Mix | None = None,
        enough: Enough | None = None,
        heard: Heard | None = None,
    ) -> list[Sample]:
        """A sample for each request, in order; from `mix` of this model's logits and those of `others`, if given.

        enough: asked whenever a sample finishes, with the finished ones of its prompt; True ends the others of it.
        heard: told of each sample, by the number of its request, once it is there and while others are still being written.
        """
        if not requests:
            return []
        models = (self.model, *others)
        for model in models:
            if not packable(model):
                name = type(decoder(model)).__name__
                raise ValueError(
                    f"the engine cannot sample from {name}: its attention does more than the engine knows; "
                    "choose a model with plain or sliding-window attention"
                )
        training = [model for model in models if model.training]  # telling every module takes milliseconds
        for model in training:
            model.eval()
        try:
            return Schedule(self, requests, models, mix, enough, heard).run()
        finally:
            for model in training:
                model.train()

    def room_after(self, prompt: int) -> int:
        """How many tokens the context holds after a prompt of so many; one that leaves none is refused."""
        if prompt >= self.context:
            raise ValueError(
                f"a prompt has {prompt} tokens, but the model's context holds {self.context}: "
                "shorten the prompt or drop such rows from the dataset"
            )
        return self.context - prompt

    def plan(self, requests: list[Request], longest: int, prompts: list[int], models: Sequence[nn.Module]) -> Plan:
        """How many rows fit, at this many tokens of their own each."""
        weight, per_token = next(self.model.parameters()), self._bytes_a_token(models)
        if self.budget is None:
            self.budget = default_budget(weight.device)
        most, step = min(len(requests), MAX_ROWS[weight.device.type]), 1 if on_gpu(weight.device) else STEP
        return plan(most, longest, prompts, per_token, self.budget, step)

    def wider(self, new: Plan, old: Plan, models: Sequence[nn.Module]) -> Plan:
        """The new plan, or one that serves the next call like the old one's, too, where the budget has room for it.

        Calls of two kinds that take turns, such as training and evaluation, then both find their slots and recordings ready.
        """
        assert self.budget is not None
        return new.joined(old, self.budget // self._bytes_a_token(models))

    def _bytes_a_token(self, models: Sequence[nn.Module]) -> int:
        size = next(self.model.parameters()).element_size()
        return sum(bytes_per_token(model, size) for model in models)
