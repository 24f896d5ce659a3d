"""Decoding on a GPU: steps are CUDA graphs, finished rows are seen one step late, so that the device never waits for
Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from burnish.engine import kv_cache
from burnish.engine.batch import RunningBatch, mates_among
from burnish.engine.host_copy import HostCopy
from burnish.engine.kept_rows import Continuation
from burnish.engine.request import Prompt
from burnish.engine.strategy import Call, DecodeStrategy
from burnish.forward import packing
from burnish.forward.packing import KEYS, spans_for
from burnish.kernels.cuda_graphs.decoding import DecodeGraphs
from burnish.kernels.cuda_graphs.prefill import GpuDecoder

AHEAD = 2  # steps queued on the device before rows change


class GraphStrategy(DecodeStrategy):
    """began  the step at which each row had no token in its slot, or would have had none
    ahead  keys of the longest row beyond steps;  ends: the last step of all rows
    """

    by_slot = can_continue = True
    cache_step = 1
    decoders: list[GpuDecoder]

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self.batch.together = any(prompt.length >= packing.SPAN and prompt.needed > 1 for prompt in call.prompts)
        self.began: list[int] = []
        self.steps = self.ahead = self.ends = 0
        self.asked: HostCopy | None = None  # which rows were done at the last look

    def allocate(self, stops: tuple[int, ...]) -> tuple[list[GpuDecoder], RunningBatch]:
        """Those of the last call, with their CUDA graphs, if they serve."""
        engine, runners = self.call.engine, self.call.runners
        graphs = engine.workspace
        if not isinstance(graphs, DecodeGraphs) or not graphs.serves(runners, self.plan, stops):
            plan = self.plan
            if isinstance(graphs, DecodeGraphs):
                plan = engine.wider(plan, graphs.plan, runners)
                graphs.release()
            graphs = engine.workspace = DecodeGraphs(runners, plan, stops, self.device)
        graphs.batch.empty(0)
        self.graphs = graphs
        return graphs.decoders, graphs.batch

    def release(self) -> None:
        """The next call uses the same memory; a KV cache that is large gives it to the learner, and is made again."""
        if self.graphs.cache_bytes() > kv_cache.kept(self.device):
            self.graphs.release()
            self.call.engine.workspace = None

    def shares_prompts(self) -> bool:
        return True

    def held(self, length: int) -> int:
        """What a prompt has beyond whole blocks of keys lies in the rows' own slots.

        It is rounded up to a block, so that slots serve the next call, whose prompts have about the same length.
        """
        return KEYS if length % KEYS else 0

    def step(self, n: int) -> None:
        self.batch.spans = spans_for(min(self.call.longest, self.steps + self.ahead))
        self.steps += 1
        if self.call.mix is None and not self.call.filtered:
            self.graphs.step(n)
        else:
            super().step(n)

    def enter(self, at: slice, prompts: list[Prompt], slots: list[int]) -> None:
        self.began += [self.steps] * len(prompts)
        if any(prompt.length % KEYS for prompt in prompts):
            for decoder in self.decoders:
                decoder.bring(self.batch, at)
        super().enter(at, prompts, slots)

    def go_on(self, at: slice, rows: Sequence[Continuation]) -> None:
        self.began += [self.steps - row.begin for row in rows]
        self.sample(self.mixed([decoder.extend(rows) for decoder in self.decoders]), at)

    def done(self, n: int, idle: Callable[[], object]) -> list[bool]:
        """As of the step before the newest."""
        if self.steps >= self.ends:  # no row may be longer
            return [True] * n
        self.asked, earlier = HostCopy([self.batch.done[:n].clone()]), self.asked
        if earlier is None or len(earlier.tensors[0]) != n:
            return [False] * n
        if not earlier.ready:
            idle()
        found: list[bool] = earlier.wait()[0].tolist()
        return found

    def worth_collecting(self, n: int, queued: bool, listening: bool, watched: bool) -> int:
        if queued:
            return max(1, n // 8)
        if listening:
            return max(1, n // 32)
        return max(16, n // 16)  # a step with a few rows less takes as long; this thread needs longer

    def before_collecting(self, n: int) -> None:
        """Queue a few steps, so that the device has work while this thread collects rows and prefills prompts."""
        for _ in range(AHEAD):
            self.step(n)

    def close_up(self, rows: int, living: list[int], moving: list[int], empty: list[int]) -> None:
        super().close_up(rows, living, moving, empty)
        for a, b in zip(moving, empty, strict=True):
            self.began[b] = self.began[a]
        self.began = self.began[: len(living)]
        self.batch.empty(len(living))

    def move(self, source: Tensor, to: Tensor) -> None:
        """Rows keep their slots: only their state moves."""
        self.batch.move(source, to)

    def regroup(self, prompts: list[Prompt], limits: list[int]) -> None:
        """How many keys the rows have, when they end, and how many neighbours share a root."""
        self.asked = None
        if not prompts:
            return
        self.ahead = max(p.length + 1 - began for p, began in zip(prompts, self.began, strict=True))
        self.ends = max(limit - 1 + began for limit, began in zip(limits, self.began, strict=True))
        self.batch.mates = mates_among([prompt.start for prompt in prompts])
