"""The local engine: it samples with the very weights that are trained, so there is nothing to synchronise.

Batching is continuous: a finished row leaves, and the next request takes its slot. A prompt that several requests share
is prefilled once and kept once. The log-prob of every sampled token comes from the pass that sampled it. Randomness is
counter-based: a request's noise depends on its own key and on the position of the token, never on its neighbours.
Memory is planned before the first token: requests wait for room in a budget that is never exceeded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import nn

from burnish.engine.denoise import DenoiseEngine
from burnish.engine.feed import Ahead, Feed
from burnish.engine.kv_cache import Plan, bytes_per_token, default_budget, plan
from burnish.engine.protocol import ALONE, GenerateOptions
from burnish.engine.request import Request, Sample, room_in
from burnish.engine.scheduler import Scheduler
from burnish.engine.transformers_engine import TransformersEngine
from burnish.engine.unmask import UnmaskEngine
from burnish.engine.vocabulary import Vocabulary
from burnish.forward.denoise import denoising_of
from burnish.forward.masked import masked_of
from burnish.forward.outputs import packable
from burnish.forward.paths import evaluating, paths_of
from burnish.forward.runner import ModelRunner
from burnish.forward.sight import sight_of

__all__ = ["LocalEngine", "Request", "Sample"]

MAX_ROWS = {"cpu": 256, "cuda": 1024}  # rows decoded together


class Workspace(Protocol):
    """What a strategy keeps from one call to the next: on a GPU the KV cache, the batch and the CUDA graphs."""

    def release(self) -> None: ...


class LocalEngine:
    """Samples replies from a model in this process.

    budget     bytes for keys and values; None takes a share of what is free
    remembers  activations are kept for a trainer of the same model, where kernels can (on a CPU)
    exact      a log-prob has the bits that the trainer finds, also where rows share a long prompt
    share_from  prompt tokens from which rows share a prompt on a CPU; None: the default
    workspace  what the last call left for the next one
    known      the longest prompt of a later turn so far: episodes of the next call may become as long
    """

    def __init__(
        self,
        runner: ModelRunner,
        chat: Vocabulary,
        context: int,
        budget: int | None = None,
        exact: bool = False,
        remembers: bool = False,
    ) -> None:
        self.runner, self.chat, self.context, self.budget, self.exact = runner, chat, context, budget, exact
        self.remembers = remembers
        self.share_from: int | None = None
        self.workspace: Workspace | None = None
        self.known = 0

    @property
    def model(self) -> nn.Module:
        """The module that is sampled from."""
        return self.runner.module

    def start(self) -> None:
        """Nothing is to be started."""

    def publish(self) -> None:
        """The engine runs the trained weights themselves."""

    def end(self) -> None:
        """Nothing runs between calls."""

    @torch.no_grad()
    def generate(self, requests: list[Request], options: GenerateOptions = ALONE) -> list[Sample]:
        """A sample for each request, in order (engine/protocol.py).

        Models that the engine does not know, or got wrong when they were loaded, are sampled by transformers' modules.
        """
        runners = (self.runner, *options.others)
        hides = masked_of(self.model)
        if hides is not None:
            fills = UnmaskEngine(self.runner, hides, self.chat, self.context)
            return fills.generate(requests, options)
        draws = denoising_of(self.model)
        if draws is not None:
            return DenoiseEngine(self.runner, draws, self.context).generate(requests, options)
        if not all(map(self._runs, runners)):
            slower = TransformersEngine(self.runner, self.chat, self.context)
            return slower.generate(requests, options)
        with evaluating([runner.module for runner in runners]):
            samples: list[Sample] = []
            feed = options.feed
            while requests or (feed is not None and (requests := feed.take(wait=True))):
                scheduler = Scheduler(self, list(requests), runners, options, len(samples))
                samples += scheduler.run()
                requests = scheduler.late
            return samples

    def _runs(self, runner: ModelRunner) -> bool:
        """Whether the engine runs a model. Decode steps on a GPU know no positions of three axes."""
        sight = sight_of(runner.module)
        on_grid = sight is not None and sight.axes and self._device.type == "cuda"
        return paths_of(runner.module).engine and packable(runner.module) and not on_grid

    def room_after(self, prompt: int) -> int:
        """How many tokens the context holds after a prompt of so many; one that leaves none is refused."""
        return room_in(self.context, prompt)

    def plan(self, rows: int, longest: int, prompts: list[int], runners: Sequence[ModelRunner], step: int) -> Plan:
        """How many rows fit, at this many tokens of their own each; a slot's capacity is a multiple of `step`."""
        most, per_token = MAX_ROWS[self._device.type], self._bytes_per_token(runners)
        return plan(min(rows, most), longest, prompts, per_token, self._budget(), step)

    def ahead(self, requests: list[Request], feed: Feed, runners: Sequence[ModelRunner]) -> Ahead:
        """What a call keeps room for: prompts as long as in earlier calls where the budget holds so many rows."""
        fits = self._budget() // self._bytes_per_token(runners) // (2 * max(feed.rows, len(requests), 1))
        return Ahead.of(requests, feed.rows, self.context, min(self.known, fits))

    def wider(self, new: Plan, old: Plan, runners: Sequence[ModelRunner]) -> Plan:
        """The new plan, or one that also serves calls like the old one's, where the budget has room for it.

        Two kinds of calls that alternate, such as training and evaluation, then share one KV cache and its CUDA graphs.
        """
        return new.joined(old, self._budget() // self._bytes_per_token(runners))

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _budget(self) -> int:
        """Bytes for keys and values: a share of what was free at the first call, where none was given."""
        if self.budget is None:
            self.budget = default_budget(self._device)
        return self.budget

    def _bytes_per_token(self, runners: Sequence[ModelRunner]) -> int:
        size = next(self.model.parameters()).element_size()
        return sum(bytes_per_token(runner.module, size) for runner in runners)
