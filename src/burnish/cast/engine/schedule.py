"""Which request is in which slot, from the first prompt to the last sample."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from burnish.cast.blend import Mix
from burnish.cast.engine import store
from burnish.cast.engine.alike import Alike
from burnish.cast.engine.complete import Brought, Complete
from burnish.cast.engine.decoding import Roots
from burnish.cast.engine.reader import Reader, panel_of
from burnish.cast.engine.request import Enough, Heard, Prompt, Request, Sample, end_of, limits_of, prompts_of
from burnish.cast.engine.rows import Rows, mates_among
from burnish.cast.engine.store import Pool, in_steps
from burnish.cast.packing import KEYS, SPAN, send, spans_for

if TYPE_CHECKING:
    from burnish.cast.local import LocalEngine

READ_AT_ONCE = 16384  # prompt tokens in one forward
AHEAD = 2  # steps queued on a GPU before rows change
WATCH = 8  # tokens between looks for stop strings
SHARE_FROM = 64  # on the CPU a shorter prompt is copied into each row's slot: one attention call beats two


class Schedule:
    """One call of the engine."""

    def __init__(
        self,
        engine: LocalEngine,
        requests: list[Request],
        models: Sequence[nn.Module],
        mix: Mix | None,
        enough: Enough | None,
        heard: Heard | None = None,
    ) -> None:
        self.engine, self.requests, self.mix, self.enough, self.heard = engine, requests, mix, enough, heard
        self.device = next(engine.model.parameters()).device
        self.gpu = store.on_gpu(self.device)
        self.kernels = all(panel_of(model) for model in models)
        self.prompts, self.of = prompts_of(requests)
        self.limits = limits_of(requests, self.prompts, engine.room_after)
        self.most = max(prompt.length + prompt.longest for prompt in self.prompts)
        self.shared = self._share()
        longest = max(prompt.longest + self._held(prompt.length) for prompt in self.prompts)
        sizes = [prompt.length for prompt in self.prompts]
        self.plan = engine.plan(requests, longest, sizes, models)
        self.readers, self.rows = self._workplace(models)
        self.rows.together = any(prompt.length >= SPAN and prompt.needed > 1 for prompt in self.prompts)
        self.pool = Pool(self.plan.pool)
        self.queue = deque(self._order())
        self.owner: list[int] = []  # the request of each row, and the slot of its keys and values
        self.slots: list[int] = []
        self.began: list[int] = []  # at which step each row entered
        self.decoded = self.ticks = 0  # steps, and looks at what became of them
        self.ahead = self.ends = 0  # keys of the longest row beyond steps; the step with which all rows have ended
        self.free = list(range(self.plan.slots))[::-1]
        self.found: dict[int, Sample] = {}
        self.aside: list[Complete] = []  # not yet looked at
        self.watched = any(r.stop for r in requests)
        self.filtered = any(r.top_k or r.top_p < 1 or r.min_p > 0 for r in requests)
        self.over: set[int] = set()  # slots whose samples are complete
        self.roots: Roots | None = None
        self.rooted: list[Prompt] = []
        self.alike = Alike(self.readers, self.rows, self.mix, self.filtered) if self.kernels else None
        if self.kernels and len(models) == 1 and engine.remembers:
            self.readers[0].remember(sum(sizes) + sum(self.limits))
        self.slotted = self.gpu or self.kernels  # whether rows are pointed to their slots; else row i is in slot i
        self.asked: Brought | None = None

    def _workplace(self, models: Sequence[nn.Module]) -> tuple[list[Reader], Rows]:
        """Slots and rows: new ones on the CPU; on a GPU those of the last call, with their recorded steps, if they serve."""
        stops = self.engine.chat.stops
        if not self.gpu:
            return [Reader(model, self.plan) for model in models], Rows(
                self.plan.slots, self.plan.capacity, stops, self.device
            )
        from burnish.cast.engine.graphs import Kept

        kept = self.engine.kept
        if kept is None or not kept.serves(models, self.plan, stops):
            plan = self.plan
            if kept is not None:
                plan = self.engine.wider(plan, kept.plan, models)
                kept.release()
            kept = self.engine.kept = Kept(models, plan, stops, self.device)
        kept.rows.empty(0)
        return kept.readers, kept.rows

    def _share(self) -> bool:
        """Whether rows look at a shared prompt where it lies, or each at its own copy.

        On the CPU short prompts are copied, and so are those that a window may cut off. Without our kernels a prompt and a reply
        that are looked at apart give other last bits than the trainer's.
        """
        if self.gpu or (self.engine.exact and not self.kernels):
            return self.gpu
        window = getattr(self.engine.model.config.get_text_config(), "sliding_window", None)  # type: ignore[union-attr, operator]
        several = any(prompt.needed > 1 for prompt in self.prompts)
        return several and max(p.length for p in self.prompts) >= SHARE_FROM and (window or self.most) >= self.most

    def _held(self, length: int) -> int:
        """How much of a prompt lies in its rows' own slots: on a GPU, what it has beyond whole blocks of keys.

        There it is rounded up, so that slots serve the next call, whose prompts are as long to a few tokens.
        """
        if self.gpu:
            return KEYS if length % KEYS else 0
        return 0 if self.shared else length

    def _order(self) -> list[int]:
        """Requests by prompt, so that those of one prompt are admitted together; longest prompts first."""
        return [i for prompt in sorted(self.prompts, key=lambda p: -p.length) for i in prompt.requests]

    def run(self) -> list[Sample]:
        try:
            self._admit()
            while self.owner:
                self._decode()
                self._collect()
                self._admit()
        finally:
            if self.engine.kept is None:
                for reader in self.readers:
                    reader.store.release()
        self._look_at_finished()
        return [self.found[i] for i in range(len(self.requests))]

    def _decode(self) -> None:
        n = len(self.owner)
        if self.gpu:
            self.rows.spans = spans_for(min(self.most, self.decoded + self.ahead))
        self.decoded += 1
        if self.engine.kept is not None and self.mix is None and not self.filtered:
            self.engine.kept.step(n)
            return
        if self.alike is not None:
            self.alike.step(n)
            return
        logits = [reader.next(self.rows, slice(0, n), self.roots) for reader in self.readers]
        self.rows.sample(self.mix(logits) if self.mix else logits[0], slice(0, n), self.filtered)

    def _admit(self) -> None:
        """Requests enter free slots, once enough are free to be worth an interruption."""
        free = self.plan.slots - len(self.owner)
        if not self.queue or (self.owner and free < max(1, self.plan.slots // 8)):
            return
        entering: list[int] = []
        unread: list[Prompt] = []
        while self.queue and len(entering) < free:
            prompt = self.of[self.queue[0]]
            if prompt.start < 0:
                start = self.pool.take(prompt.length)
                if start is None:
                    break
                prompt.start = start
                unread.append(prompt)
            entering.append(self.queue.popleft())
        if entering:
            self._read(unread)
            self._enter(entering)

    def _read(self, unread: list[Prompt]) -> None:
        """Prompts are read, and the logits after them noted."""
        while unread:
            size = 0
            some: list[Prompt] = []
            while unread and (not some or size + unread[0].length <= READ_AT_ONCE):
                size += unread[0].length
                some.append(unread.pop(0))
            places = np.concatenate([np.arange(p.start, p.start + p.length) for p in some])
            for reader in self.readers:
                logits = reader.read([p.tokens for p in some], places)
                for k, prompt in enumerate(some):
                    prompt.after.append(logits[k])
                for prompt, number in zip(some, reader.ends, strict=False):  # none where nothing is kept
                    prompt.number = number

    def _enter(self, entering: list[int]) -> None:
        """Rows for these requests, and their first tokens."""
        at = slice(len(self.owner), len(self.owner) + len(entering))
        slots = [self.free.pop() for _ in entering] if self.slotted else list(range(at.start, at.stop))
        self.owner += entering
        self.slots += slots
        self.began += [self.decoded] * len(entering)
        requests, prompts = [self.requests[i] for i in entering], [self.of[i] for i in entering]
        lengths = [prompt.length for prompt in prompts]
        self.rows.put(
            at,
            {
                "limit": [self.limits[i] for i in entering],
                "key": [r.key for r in requests],
                "slot": slots,
                "root": [p.start for p in prompts],
                "root_length" if self.shared else "base": lengths,
                "top_k": [r.top_k for r in requests],
                "factor": [1.0 / r.temperature if r.temperature else 1.0 for r in requests],
                "top_p": [r.top_p for r in requests],
                "min_p": [r.min_p for r in requests],
                "greedy": [r.temperature == 0 for r in requests],
            },
        )
        first = [torch.stack([p.after[k] for p in prompts]) for k in range(len(self.readers))]
        into, written = (
            (self.alike.enter(at, prompts, slots), dict.fromkeys(prompts)) if self.alike else (slots, prompts)
        )
        if not self.shared:
            longest = torch.arange(in_steps(max(lengths)))
            places = torch.stack([longest.clamp(max=p.length - 1) + p.start for p in written])
            for reader in self.readers:
                reader.store.copy_prompts(torch.tensor(into), places)
            for prompt in prompts:
                self._let_go(prompt)
        if self.gpu and any(length % KEYS for length in lengths):
            for reader in self.readers:
                reader.bring(self.rows, at)
        logits = self.mix(first) if self.mix else first[0]
        if self.alike is not None:
            self.alike.sample(logits, at)
        else:
            self.rows.sample(logits, at, self.filtered)
        self.asked = None
        self._regroup()

    def _let_go(self, prompt: Prompt) -> None:
        """One request less needs the prompt; the last one gives its place back."""
        prompt.needed -= 1
        if not prompt.needed:
            self.pool.give(prompt.start, prompt.length)
            prompt.start, prompt.after = -1, []

    def _collect(self) -> None:
        """Rows that have finished become samples, and the others move up, once enough of them have to be worth it."""
        self.ticks += 1
        n = len(self.owner)
        done = self._done(n)
        if self.watched and self.ticks % WATCH == 0:
            self._watch(done)
        found = sum(done)
        if not found or (found < n and found < self._worth_it(n) and self.enough is None):
            return
        if self.engine.kept is not None and found < n:
            self._work_ahead()
        self._finish([row for row in range(n) if done[row] and row not in self.over])
        if self.over:
            self._close_up()

    def _worth_it(self, n: int) -> int:
        """How many of n rows must have finished before the others move up."""
        if self.kernels:  # a row that has finished costs nothing, unless nobody but `_watch` knows that it has
            return 1 if self.queue or self.heard is not None or self.watched else n
        if not self.gpu:
            return max(1, n // 8)
        if self.queue:
            return max(1, n // 8)
        if self.heard is not None:
            return max(1, n // 32)
        return max(16, n // 16)  # a step of a few rows less takes as long; this thread needs longer

    def _work_ahead(self) -> None:
        """On a GPU: a few steps are queued, so that it has work while this thread is busy with rows and prompts."""
        for _ in range(AHEAD):
            self._decode()

    def _done(self, n: int) -> list[bool]:
        """Which rows are done. On a GPU: as of the step before the newest, so that the device never waits to be asked."""
        if not self.gpu:
            return self.rows.done[:n].tolist()
        if self.decoded >= self.ends:  # no row may be longer
            return [True] * n
        self.asked, earlier = Brought([self.rows.done[:n].clone()]), self.asked
        if earlier is None or len(earlier.tensors[0]) != n:
            return [False] * n
        if not earlier.there:
            self._look_at_finished(waiting=False)
        return earlier.wait()[0].tolist()  # type: ignore[no-any-return]

    def _watch(self, done: list[bool]) -> None:
        """Rows in whose text a stop string has appeared are done."""
        for row, i in enumerate(self.owner):
            if self.requests[i].stop and not done[row]:
                tokens = self.rows.tokens[self.slots[row], : int(self.rows.count[row])].cpu()
                done[row] = end_of(tokens, self.requests[i].stop, self.engine.chat.text) is not None

    def _finish(self, slots: list[int], stopped: str = "") -> None:
        """These rows are complete: what they hold is put aside. It is looked at now only if something depends on it."""
        if not slots:
            return
        at = send(torch.tensor(slots), self.device)
        rows = self.rows
        if stopped or any(self.requests[self.owner[slot]].stop for slot in slots):
            rows.done[at] = True
        held = (rows.tokens[rows.slot[at]], rows.logp[rows.slot[at]], rows.count[at], rows.ended[at])
        self.aside.append(Complete([self.owner[slot] for slot in slots], *held, stopped))
        self.over |= set(slots)
        if self.shared:
            for slot in slots:
                self._let_go(self.of[self.owner[slot]])
        if self.enough is not None:
            for prompt in self._look_at_finished():
                if self.enough(prompt.finished):
                    self._end_others(prompt)
        elif self.heard is not None:
            self._look_at_finished()

    def _look_at_finished(self, waiting: bool = True) -> list[Prompt]:
        """What was put aside (if not waiting: what is here of it) becomes samples; the prompts that got new ones."""
        touched: dict[Prompt, None] = {}
        while self.aside and (waiting or self.aside[0].held.there):
            some = self.aside.pop(0)
            for i, its, its_logp, by_token in some.samples():
                stop = self.requests[i].stop
                end = end_of(its, stop, self.engine.chat.text) if stop else None
                why = some.stopped or ("stop" if end is not None or by_token else "length")
                sample = Sample(its, its_logp, why) if end is None else Sample(its[:end], its_logp[:end], why)
                self.found[i] = sample
                if self.heard is not None:
                    self.heard(i, sample)
                if self.enough is not None and not some.stopped:
                    self.of[i].finished.append(sample)
                    touched[self.of[i]] = None
        return list(touched)

    def _end_others(self, prompt: Prompt) -> None:
        """The prompt has enough samples: the rest of them end where they are."""
        for i in [i for i in self.queue if self.of[i] is prompt]:
            self.queue.remove(i)
            self.found[i] = Sample(torch.zeros(0, dtype=torch.long), torch.zeros(0), "enough")
            self._let_go(prompt)
        self._finish(
            [slot for slot, i in enumerate(self.owner) if self.of[i] is prompt and slot not in self.over], "enough"
        )

    def _close_up(self) -> None:
        """Living rows move up, so that they are the first ones again; the slots of the others are free."""
        living = [row for row in range(len(self.owner)) if row not in self.over]
        n = len(living)
        if self.alike is not None:  # nobody may be left with what lies in a slot that is free
            self.alike.part(np.isin(np.arange(len(self.owner)), living), leaving=True)
        empty = [row for row in sorted(self.over) if row < n]
        moving = [row for row in living if row >= n]
        if moving:
            source, to = (send(torch.tensor(x), self.device) for x in (moving, empty))
            self._move(source, to)
            for a, b in zip(moving, empty, strict=True):
                self.owner[b], self.began[b] = self.owner[a], self.began[a]
                if self.slotted:
                    self.slots[a], self.slots[b] = self.slots[b], self.slots[a]
        if self.alike is not None:
            self.alike.move(moving, empty)
        self.free += self.slots[n:]
        self.owner, self.slots, self.began = self.owner[:n], self.slots[:n], self.began[:n]
        if self.gpu:
            self.rows.empty(n)
        self.over = set()
        self.asked = None
        self._regroup()

    def _move(self, source: Tensor, to: Tensor) -> None:
        """Rows take the places of others. Where row i is in slot i, what is in the slots moves along."""
        slot = self.rows.slot[to]
        self.rows.move(source, to)
        if self.slotted:
            return
        self.rows.slot[to] = slot
        for held in (self.rows.tokens, self.rows.logp):
            held[to] = held[source]
        for reader in self.readers:
            reader.store.move(source, to)

    def _regroup(self) -> None:
        """Rows have changed. On a GPU: how far they reach; on the CPU: which share which root, and the roots side by side."""
        if self.gpu and self.owner:
            alive = list(zip(self.owner, self.began, strict=True))
            self.ahead = max(self.of[i].length + 1 - began for i, began in alive)
            self.ends = max(self.limits[i] - 1 + began for i, began in alive)
            self.rows.mates = mates_among([self.of[i].start for i in self.owner])
        if not self.shared or self.gpu or not self.owner:
            return
        by_prompt: dict[Prompt, list[int]] = {}
        for slot, i in enumerate(self.owner):
            by_prompt.setdefault(self.of[i], []).append(slot)
        self.roots = Roots.among(list(by_prompt.values()), [prompt.length for prompt in by_prompt])
        if list(by_prompt) != self.rooted:
            self.rooted = list(by_prompt)
            longest = torch.arange(self.roots.longest)
            places = torch.stack([longest.clamp(max=p.length - 1) + p.start for p in by_prompt])
            for reader in self.readers:
                reader.store.gather_roots(places)
        if self.alike is not None:
            self.alike.share(self.roots)
