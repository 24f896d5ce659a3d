"""Continuous batching: which request is in which row, from the first prompt to the last sample."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from burnish.engine.batch import sampling_of
from burnish.engine.host_copy import FinishedRows
from burnish.engine.kept_rows import Continuation, KeptRow, KeptRows
from burnish.engine.kv_cache import Pool
from burnish.engine.protocol import GenerateOptions
from burnish.engine.request import Prompt, Request, Sample, Stopped, end_of, limits_of, prompts_of
from burnish.engine.strategy import Call, strategy_of
from burnish.forward.module import vocabulary_size
from burnish.forward.packing import send
from burnish.forward.runner import ModelRunner
from burnish.util.work_units import UNITS

if TYPE_CHECKING:
    from burnish.engine.local import LocalEngine

PREFILL_TOKENS = 16384  # prompt tokens in one forward pass
WATCH = 8  # steps between searches for stop strings
PATIENCE = 16  # steps that a few requests wait for others: to admit some takes the time of about three steps


class Scheduler:
    """One call of the engine.

    feed          where more requests come from while rows are decoded; first: the number of the first request
    late          requests that arrived and for which nothing has room: a next Scheduler takes them
    owner, slots  of each running row: the number of its request, and the slot of its keys and values
    finished      rows that were collected and not yet turned into samples
    gone          rows that were collected and whose places are not yet taken
    kept          finished rows whose slots wait for a request that goes on there; None where none can
    going_on      requests that are to enter such slots, and how each goes on
    """

    def __init__(
        self,
        engine: LocalEngine,
        requests: list[Request],
        runners: Sequence[ModelRunner],
        options: GenerateOptions,
        first: int = 0,
    ) -> None:
        self.requests, self.chat = requests, engine.chat
        self.stop_rule, self.on_sample, self.feed = options.stop_rule, options.on_sample, options.feed
        self.first, self.room_after = first, engine.room_after
        self.late: list[Request] = []
        prompts, of = prompts_of(requests)
        limits = limits_of(requests, prompts, engine.room_after)
        self.of, self.limits = dict(enumerate(of)), dict(enumerate(limits))
        self.ahead = None if self.feed is None else engine.ahead(requests, self.feed, runners)
        self.call = Call(engine, requests, prompts, limits, runners, options.mix, self.ahead)
        self.strategy = strategy_of(self.call)
        self.batch, self.device = self.strategy.batch, self.strategy.device
        self.room = self.strategy.plan.slots
        self.pool = Pool(self.strategy.plan.pool)
        self.queue = deque(_order(prompts))
        self.owner: list[int] = []
        self.slots: list[int] = []
        self.free = list(range(self.room))[::-1]
        self.ticks = 0
        self.samples: dict[int, Sample] = {}
        self.finished: list[FinishedRows] = []
        self.watched = any(r.stop for r in requests)
        self.told = any(r.told for r in requests)
        self.gone: set[int] = set()
        self.kept = KeptRows(self.strategy.plan.capacity) if self.strategy.continues else None
        self.going_on: dict[int, Continuation] = {}
        self.waiting = 0  # steps since the first of the requests arrived that have not been admitted
        self.begins: dict[int, int] = {}  # of requests that go on: the tokens in the slot before the reply

    def run(self) -> list[Sample]:
        """A sample for each request, in order."""
        try:
            self._admit()
            while self.owner:
                self.strategy.step(len(self.owner))
                UNITS.done()
                self._collect()
                self._receive()
                self._admit()
        finally:
            self.strategy.release()
        self._take_samples()
        return [self.samples[i] for i in range(len(self.requests))]

    def _receive(self) -> None:
        """Queue the requests that have arrived; wait for one where nothing else is left to do."""
        if self.feed is None or self.late:
            return
        new = self.feed.take(wait=not self.owner and not self.queue and not self.going_on)
        if not all(self._has_room(request) for request in new):
            self.late = new
            return
        self.watched |= any(request.stop for request in new)
        self.told |= any(request.told is not None for request in new)
        fresh = [i for i, request in enumerate(new, len(self.requests)) if not self._goes_on(i, request)]
        self.requests += new
        arrived = [self.requests[i] for i in fresh]
        prompts, of = prompts_of(arrived)
        limits = limits_of(arrived, prompts, self.room_after)
        self.of.update(zip(fresh, of, strict=True))
        self.limits.update(zip(fresh, limits, strict=True))
        for prompt in prompts:
            prompt.requests = [fresh[k] for k in prompt.requests]
        self.queue += _order(prompts)

    def _goes_on(self, i: int, request: Request) -> bool:
        """Whether a request goes on where an earlier one has ended: its slot has the keys and values of its prompt."""
        length = request.prompt.shape[0]
        if request.after is not None:
            self.call.engine.known = max(self.call.engine.known, length)
        if self.kept is None:
            return False
        continued = self.kept.go_on(request, self.strategy.held)
        if isinstance(continued, KeptRow):
            self._give_up(continued)
        if not isinstance(continued, Continuation):
            return False
        self.going_on[i], self.of[i], self.begins[i] = continued, continued.root, continued.begin
        self.limits[i] = continued.begin + min(request.max_new, self.room_after(length))
        return True

    def _give_up(self, row: KeptRow) -> None:
        """Nothing goes on in the slot of a finished row."""
        self.free.append(row.slot)
        self._let_go(row.root)

    def _has_room(self, request: Request) -> bool:
        """Whether the slots that were planned hold a request, and the steps sample as it asks."""
        assert self.ahead is not None
        size = request.prompt.shape[0] <= self.ahead.prompt and request.max_new <= self.ahead.reply
        return size and (self.call.filtered or not request.filtered)

    def _admit(self) -> None:
        """Requests enter free rows, once enough are free, or have arrived, to be worth an interruption."""
        if self.feed is not None and not self._enough_arrived():
            return
        self._go_on()
        free = self._free_rows()
        if not self.queue or (self.owner and free < max(1, self.room // 8)):
            return
        entering: list[int] = []
        unread: list[Prompt] = []
        while self.queue and len(entering) < free:
            prompt = self.of[self.queue[0]]
            if prompt.start < 0:
                start = self._place(prompt.length)
                if start is None:
                    break
                prompt.start = start
                unread.append(prompt)
            entering.append(self.queue.popleft())
        if entering:
            self._prefill(unread)
            self._enter(entering)

    def _enough_arrived(self) -> bool:
        """Whether requests that arrived are worth an interruption of the running rows, or have waited long enough."""
        arrived = len(self.queue) + len(self.going_on)
        self.waiting = self.waiting + 1 if arrived else 0
        if arrived < len(self.owner) // 8 and self.waiting < PATIENCE:
            return False
        self.waiting = 0
        return True

    def _free_rows(self) -> int:
        """How many requests may enter. Kept rows give up their slots to them while less than half of all run."""
        free = self.room - len(self.owner) - (0 if self.kept is None else len(self.kept))
        while self.kept and free < len(self.queue) and free + len(self.owner) < max(1, self.room // 2):
            self._give_up(self.kept.oldest())
            free += 1
        return free

    def _place(self, length: int) -> int | None:
        """Room for a prompt in the pool, for which kept rows give up theirs."""
        start = self.pool.take(length)
        while start is None and self.kept:
            self._give_up(self.kept.oldest())
            start = self.pool.take(length)
        return start

    def _prefill(self, unread: list[Prompt]) -> None:
        """Prefill prompts, and keep the logits after each."""
        while unread:
            size = 0
            some: list[Prompt] = []
            while unread and (not some or size + unread[0].length <= PREFILL_TOKENS):
                size += unread[0].length
                some.append(unread.pop(0))
            places = np.concatenate([np.arange(p.start, p.start + p.length) for p in some])
            for decoder in self.strategy.decoders:
                logits = decoder.prefill([p.tokens for p in some], places, _input_keys(some))
                for k, prompt in enumerate(some):
                    prompt.after.append(logits[k])
                    prompt.shift = decoder.shift(prompt.tokens)
                for prompt, number in zip(some, decoder.ends, strict=False):  # none without an activation cache
                    prompt.number = number

    def _enter(self, entering: list[int]) -> None:
        """Rows for these requests, and their first tokens."""
        strategy, first = self.strategy, len(self.owner)
        by_slot, rows = strategy.by_slot, range(first, first + len(entering))
        at, prompts = self._put(entering, [self.free.pop() for _ in entering] if by_slot else list(rows))
        strategy.enter(at, prompts, self.slots[at])
        if not strategy.shared:  # each row has its copy now
            for prompt in prompts:
                self._let_go(prompt)
        self._regroup()

    def _go_on(self) -> None:
        """Rows for the requests that go on in slots of others, and their first tokens."""
        if not self.going_on:
            return
        going_on, self.going_on = self.going_on, {}
        at, _ = self._put(list(going_on), [continuation.slot for continuation in going_on.values()])
        self.strategy.go_on(at, list(going_on.values()))
        self._regroup()

    def _put(self, entering: list[int], slots: list[int]) -> tuple[slice, list[Prompt]]:
        """The state of requests that enter, in these slots: their rows, and the prompt of each."""
        at = slice(len(self.owner), len(self.owner) + len(entering))
        self.owner += entering
        self.slots += slots
        requests, prompts = [self.requests[i] for i in entering], [self.of[i] for i in entering]
        self.batch.put(
            at,
            {
                "limit": [self.limits[i] for i in entering],
                "count": [self.begins.get(i, 0) for i in entering],
                "key": [r.key for r in requests],
                "slot": slots,
                "root": [p.start for p in prompts],
                "shift": [p.shift for p in prompts],
                "root_length" if self.strategy.shared else "base": [p.length for p in prompts],
                **sampling_of(requests),
            },
        )
        if self.call.filtered:
            self.batch.read_prompts(at, requests, vocabulary_size(self.call.runners[0].module))
        return at, prompts

    def _let_go(self, prompt: Prompt) -> None:
        """One request less needs the prompt; the last one frees its place in the pool."""
        prompt.needed -= 1
        if not prompt.needed:
            self.pool.give(prompt.start, prompt.length)
            prompt.start, prompt.after = -1, []

    def _collect(self) -> None:
        """Done rows become samples and the others move up, once enough rows are done to be worth it."""
        self.ticks += 1
        n = len(self.owner)
        done = self.strategy.done(n, lambda: self._take_samples(waiting=False))
        if self.told:
            self._tell_tokens()
        if self.watched and self.ticks % WATCH == 0:
            self._find_stop_strings(done)
        number = sum(done)
        needed = self.strategy.worth_collecting(n, bool(self.queue), self.on_sample is not None, self.watched)
        if not number or (number < n and number < needed and self.stop_rule is None):
            return
        if number < n:
            self.strategy.before_collecting(n)
        self._finish([row for row in range(n) if done[row] and row not in self.gone])
        if self.gone:
            self._close_up()

    def _tell_tokens(self) -> None:
        """Requests that follow their tokens get those so far."""
        for row, i in enumerate(self.owner):
            told = self.requests[i].told
            if told is not None and row not in self.gone:
                told(self.batch.tokens[self.slots[row], self.begins.get(i, 0) : int(self.batch.count[row])].cpu())

    def _find_stop_strings(self, done: list[bool]) -> None:
        """Rows in whose text a stop string has appeared are done."""
        for row, i in enumerate(self.owner):
            if self.requests[i].stop and not done[row]:
                tokens = self.batch.tokens[self.slots[row], self.begins.get(i, 0) : int(self.batch.count[row])].cpu()
                done[row] = end_of(tokens, self.requests[i].stop, self.chat.text) is not None

    def _finish(self, rows: list[int], stopped: Stopped | None = None) -> None:
        """Collect rows: copy their samples to the host. They are read now only if something depends on them."""
        if not rows:
            return
        at, batch = send(torch.tensor(rows), self.device), self.batch
        if stopped or any(self.requests[self.owner[row]].stop for row in rows):
            batch.done[at] = True
        tensors = (batch.tokens[batch.slot[at]], batch.logp[batch.slot[at]], batch.count[at], batch.ended[at])
        owners = [self.owner[row] for row in rows]
        begins = [self.begins.get(i, 0) for i in owners]
        allowed = None
        if batch.allowed is not None:
            ends = batch.count[at].tolist()
            slots = [self.slots[row] for row in rows]
            allowed = [batch.take_allowed(*places) for places in zip(slots, begins, ends, strict=True)]
        self.finished.append(FinishedRows(owners, begins, tensors, stopped, allowed))
        self.gone |= set(rows)
        for row, i in zip(rows, owners, strict=True):
            if self.kept is not None:
                self.kept.keep(self.first + i, self.slots[row], self.of[i])
            elif self.strategy.shared:
                self._let_go(self.of[i])
        if self.stop_rule is not None:
            for prompt in self._take_samples():
                if self.stop_rule(prompt.finished):
                    self._end_others(prompt)
        elif self.on_sample is not None:
            self._take_samples()

    def _take_samples(self, waiting: bool = True) -> list[Prompt]:
        """Turn collected rows (if not waiting: those that are on the host) into samples; the prompts
        that got new ones.
        """
        touched: dict[Prompt, None] = {}
        while self.finished and (waiting or self.finished[0].copy.ready):
            some = self.finished.pop(0)
            for i, tokens, logp, by_token, allowed in some.samples():
                stop = self.requests[i].stop
                end = end_of(tokens, stop, self.chat.text) if stop else None
                why: Stopped = some.stopped or ("stop" if end is not None or by_token else "length")
                sample = Sample(tokens, logp, why, allowed)
                sample = sample if end is None else sample.first(end)
                self.samples[i] = sample
                if self.kept is not None:
                    self.kept.read(self.first + i, self.requests[i].prompt.shape[0] + sample.tokens.shape[0])
                if self.on_sample is not None:
                    self.on_sample(self.first + i, sample)
                if self.stop_rule is not None and not some.stopped:
                    self.of[i].finished.append(sample)
                    touched[self.of[i]] = None
        return list(touched)

    def _end_others(self, prompt: Prompt) -> None:
        """The stop rule holds for the prompt: its other requests end where they are."""
        for i in [i for i in self.queue if self.of[i] is prompt]:
            self.queue.remove(i)
            self.samples[i] = Sample(torch.zeros(0, dtype=torch.long), torch.zeros(0), "enough")
            self._let_go(prompt)
        rows = [row for row, i in enumerate(self.owner) if self.of[i] is prompt and row not in self.gone]
        self._finish(rows, "enough")

    def _close_up(self) -> None:
        """Living rows move up, so that they are the first ones again; the slots of the others are free."""
        living = [row for row in range(len(self.owner)) if row not in self.gone]
        n = len(living)
        empty = [row for row in sorted(self.gone) if row < n]
        moving = [row for row in living if row >= n]
        self.strategy.close_up(len(self.owner), living, moving, empty)
        for a, b in zip(moving, empty, strict=True):
            self.owner[b] = self.owner[a]
            if self.strategy.by_slot:
                self.slots[a], self.slots[b] = self.slots[b], self.slots[a]
        occupied = set() if self.kept is None else self.kept.slots()
        self.free += [slot for slot in self.slots[n:] if slot not in occupied]
        self.owner, self.slots = self.owner[:n], self.slots[:n]
        self.gone = set()
        self._regroup()

    def _regroup(self) -> None:
        """Tell the strategy which rows are running now."""
        self.strategy.regroup([self.of[i] for i in self.owner], [self.limits[i] for i in self.owner])


def _order(prompts: Sequence[Prompt]) -> list[int]:
    """Requests by prompt, so that those of one prompt are admitted together; longest prompts first."""
    return [i for prompt in sorted(prompts, key=lambda p: -p.length) for i in prompt.requests]


def _input_keys(prompts: Sequence[Prompt]) -> list[Tensor] | None:
    """The input keys of each prompt; None where the tokens of all are their keys."""
    if all(prompt.input_keys is None for prompt in prompts):
        return None
    return [prompt.tokens if prompt.input_keys is None else prompt.input_keys for prompt in prompts]
