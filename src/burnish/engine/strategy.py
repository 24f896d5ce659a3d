"""How one call of the engine is decoded: where prompts lie, how rows move, when finished rows are collected, how a step
runs.

`DecodeStrategy` is the general one, for a CPU. `burnish.kernels` has two more: C kernels that decode identical rows
once, and
CUDA graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from burnish.engine.batch import RunningBatch
from burnish.engine.feed import Ahead
from burnish.engine.kept_rows import Continuation
from burnish.engine.kv_cache import STEP, KVCache, Plan, in_steps
from burnish.engine.layouts import Roots
from burnish.engine.mixture import Mix
from burnish.engine.model_decoder import ModelDecoder
from burnish.engine.protocol import engine_kernels
from burnish.engine.request import Prompt, Request
from burnish.forward.module import text_config
from burnish.forward.packing import send
from burnish.forward.runner import ModelRunner

if TYPE_CHECKING:
    from burnish.engine.local import LocalEngine

SHARE_FROM = 64  # on a CPU a shorter prompt is copied into each row's slot: one attention call is faster than two


@dataclass(frozen=True)
class Call:
    """One call of the engine: the requests, their prompts and limits, and the models that are sampled from.

    ahead: the room that is kept for requests that arrive later; None where none do
    """

    engine: LocalEngine
    requests: list[Request]
    prompts: list[Prompt]
    limits: list[int]
    runners: Sequence[ModelRunner]
    mix: Mix | None
    ahead: Ahead | None = None

    @property
    def device(self) -> torch.device:
        return next(self.runners[0].module.parameters()).device

    @cached_property
    def longest(self) -> int:
        """The most tokens that a prompt and its reply may have."""
        own = max(prompt.length + prompt.longest for prompt in self.prompts)
        ahead = self.ahead.prompt + self.ahead.reply if self.ahead else 0
        return max(own, min(ahead, self.engine.context))

    @cached_property
    def tokens(self) -> int:
        """The most tokens that all prompts and replies may have."""
        own = sum(p.length for p in self.prompts) + sum(self.limits)
        return own if self.ahead is None else max(own, self.ahead.rows * self.longest)

    @cached_property
    def filtered(self) -> bool:
        """Whether some requests sample from a part of the vocabulary."""
        return any(request.filtered for request in self.requests)


class DecodeStrategy:
    """The general strategy: row i is in slot i, every row is computed at every step.

    shared     whether rows attend to a shared prompt where it lies in the pool; else each has a copy in its slot
    continues  whether a request may go on in the slot of the one before it (engine/kept_rows.py)
    """

    by_slot = False  # whether a row may be in any slot, so that rows move without their keys and values
    can_continue = False
    cache_step = STEP  # the capacity of a slot is a multiple of it

    def __init__(self, call: Call) -> None:
        self.call, self.device = call, call.device
        self.shared = self.shares_prompts()
        self.plan = self._plan(0)
        self.continues = False
        if self.can_continue and call.ahead is not None:  # unless fewer rows would fit
            more = self._plan(call.ahead.prompt)
            self.continues = more.slots >= self.plan.slots
            self.plan = more if self.continues else self.plan
        self.decoders, self.batch = self.allocate(call.engine.chat.stops)
        self.roots: Roots | None = None
        self._rooted: list[Prompt] = []

    def _plan(self, own: int) -> Plan:
        """Room for the call. own: the tokens of a prompt that lie in a slot where a row goes on after another."""
        call = self.call
        longest = max(prompt.longest + self.held(prompt.length) for prompt in call.prompts)
        rows, sizes = len(call.requests), [prompt.length for prompt in call.prompts]
        if call.ahead is not None:
            rows, sizes = call.ahead.rows, [call.ahead.prompt] * call.ahead.rows
            slot_tokens = max(self.held(length) for length in (call.ahead.prompt, call.ahead.prompt - 1))
            longest = max(longest, call.ahead.reply + slot_tokens + own)
        return call.engine.plan(rows, longest, sizes, call.runners, self.cache_step)

    def allocate(self, stops: tuple[int, ...]) -> tuple[Sequence[ModelDecoder], RunningBatch]:
        """A KV cache for each model, and the batch."""
        decoders = [decoder_of(runner, self.plan) for runner in self.call.runners]
        return decoders, RunningBatch(self.plan.slots, self.plan.capacity, stops, self.device)

    def release(self) -> None:
        """Free the memory that the next call does not use again."""
        for decoder in self.decoders:
            decoder.cache.release()

    def shares_prompts(self) -> bool:
        """Short prompts are copied, and so are those that a sliding window may cut off.

        Attention to a shared prompt and to own tokens in two calls gives other last bits than the trainer's.
        """
        return not self.call.engine.exact and self.worth_sharing()

    def worth_sharing(self) -> bool:
        """Whether several rows have one long prompt, no longer than the model's window.

        Rows that arrive one by one have prompts of their own; shared ones would be gathered at every change of rows.
        """
        if self.call.ahead is not None:
            return False
        prompts, longest = self.call.prompts, self.call.longest
        window = getattr(text_config(self.call.runners[0].module), "sliding_window", None)
        several = any(prompt.needed > 1 for prompt in prompts)
        long = max(p.length for p in prompts) >= (self.call.engine.share_from or SHARE_FROM)
        return several and long and (window or longest) >= longest

    def held(self, length: int) -> int:
        """How many tokens of a prompt of this length lie in its rows' own slots."""
        return 0 if self.shared else length

    def step(self, n: int) -> None:
        """One more token for each of the first n rows."""
        at = slice(0, n)
        self.sample(self.mixed([decoder.step(self.batch, at, self.roots) for decoder in self.decoders]), at)

    def mixed(self, logits: list[Tensor]) -> Tensor:
        """One tensor of logits from each model's."""
        return logits[0] if self.call.mix is None else self.call.mix(logits)

    def sample(self, logits: Tensor, at: slice) -> None:
        """A token for each row of a slice from its logits."""
        self.batch.sample(logits, at, self.call.filtered)

    def enter(self, at: slice, prompts: list[Prompt], slots: list[int]) -> None:
        """Rows whose state is in the batch get their prompts and their first tokens."""
        first = [torch.stack([p.after[k] for p in prompts]) for k in range(len(self.decoders))]
        if not self.shared:
            self.copy_prompts(prompts, slots)
        self.sample(self.mixed(first), at)

    def go_on(self, at: slice, rows: Sequence[Continuation]) -> None:
        """Rows whose state is in the batch go on in slots that hold what is before them, and get their first tokens."""
        raise NotImplementedError("only where `continues`")

    def copy_prompts(self, prompts: Sequence[Prompt], slots: list[int]) -> None:
        """Copy prompts from the pool into slots."""
        places = _places(prompts, in_steps(max(p.length for p in prompts)))
        for decoder in self.decoders:
            decoder.cache.copy_prompts(torch.tensor(slots), places)

    def done(self, n: int, idle: Callable[[], object]) -> list[bool]:
        """Which of the first n rows are known to be done. idle: may be called while this thread would wait."""
        done: list[bool] = self.batch.done[:n].tolist()
        return done

    def worth_collecting(self, n: int, queued: bool, listening: bool, watched: bool) -> int:
        """How many of n rows must be done before they are collected and the others move up.

        queued: requests wait for a slot; listening: samples are reported at once; watched: there are stop strings.
        """
        return max(1, n // 8 if self.call.ahead is None else n // 32)  # an episode goes on when its row is collected

    def before_collecting(self, n: int) -> None:
        """Rows are about to be collected while others run on."""

    def close_up(self, rows: int, living: list[int], moving: list[int], empty: list[int]) -> None:
        """Of so many rows, `moving` take the places `empty` of rows that are gone: the living rows are
        then the first.
        """
        if moving:
            source, to = (send(torch.tensor(x), self.device) for x in (moving, empty))
            self.move(source, to)

    def move(self, source: Tensor, to: Tensor) -> None:
        """Move the state of rows, and the content of their slots."""
        slot = self.batch.slot[to]
        self.batch.move(source, to)
        self.batch.slot[to] = slot
        self.batch.move_samples(source, to)
        for decoder in self.decoders:
            decoder.cache.move(source, to)

    def regroup(self, prompts: list[Prompt], limits: list[int]) -> None:
        """The running rows have changed: the prompt and the limit of each, in order."""
        if not self.shared or not prompts:
            return
        by_prompt: dict[Prompt, list[int]] = {}
        for row, prompt in enumerate(prompts):
            by_prompt.setdefault(prompt, []).append(row)
        self.roots = Roots.among(list(by_prompt.values()), [prompt.length for prompt in by_prompt])
        if list(by_prompt) != self._rooted:
            self._rooted = list(by_prompt)
            places = _places(self._rooted, self.roots.longest)
            for decoder in self.decoders:
                decoder.cache.gather_roots(places)


def _places(prompts: Sequence[Prompt], longest: int) -> Tensor:
    """[prompts, longest]: where the tokens of each lie in the pool; padding repeats the last."""
    numbers = torch.arange(longest)
    return torch.stack([numbers.clamp(max=p.length - 1) + p.start for p in prompts])


def decoder_of(runner: ModelRunner, plan: Plan) -> ModelDecoder:
    """Prefill and decode steps of a model: by kernels where they run it."""
    accelerators = engine_kernels()
    fast = None if accelerators is None else accelerators.decoder(runner, plan)
    return ModelDecoder(runner, KVCache(plan)) if fast is None else fast


def strategy_of(call: Call) -> DecodeStrategy:
    """How this call is decoded: by kernels where they run all of its models."""
    accelerators = engine_kernels()
    fast = None if accelerators is None else accelerators.strategy(call)
    return DecodeStrategy(call) if fast is None else fast
