"""A discrete-event simulation of a training run: sampling, scoring, learning, new weights, stragglers, failures.

Replies are numbered. A step learns from the first N that are scored. A reply may start when the weights are at most
`lag` versions behind those that will learn from it: with N replies a step and version v published, (v + 1 + lag) N may
have been started. With lag 0 that is synchronous training.

An engine decodes its replies one token at a time together, so all advance by the same count: the engine's clock in
tokens. A reply ends when the clock has moved by its length. The time of a token follows from what is active
(costs.decode_seconds), and is looked at again after each change and after `STRIDE` tokens.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from burnish.run.step_time import Gpu
from burnish.simulator.costs import (
    Parallel,
    Rates,
    Work,
    decode_seconds,
    decode_slots,
    learn_seconds,
    prefill_seconds,
    publish_seconds,
)
from burnish.simulator.lengths import Lengths
from burnish.simulator.shapes import Costs

STRIDE = 512  # tokens after which a decode step is timed again, as its context has grown


@dataclass(frozen=True)
class Placement:
    """Who computes where.

    trainers   GPUs that learn;  samplers: GPUs that sample: 0 means that the trainers do both in turns
    tensor     GPUs of one sampling engine;  parallel: degrees of the trainer
    lag        weight versions that a reply may be behind
    """

    trainers: int
    samplers: int = 0
    tensor: int = 1
    parallel: Parallel = Parallel()
    lag: int = 0

    def __post_init__(self) -> None:
        if self.lag and not self.samplers:
            raise ValueError("a lag needs GPUs that sample while others learn; give samplers some, or no lag")
        if self.sampling // self.tensor < 1:
            raise ValueError(f"{self.sampling} GPUs cannot hold an engine of {self.tensor}")

    @property
    def sampling(self) -> int:
        """GPUs that sample."""
        return self.samplers or self.trainers

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.trainers + self.samplers


@dataclass(frozen=True)
class Job:
    """What each step does: prompts x samples, lengths, updates, forward passes beside training."""

    model: Costs
    gpu: Gpu
    replies: int
    lengths: Lengths
    prompt: float = 150.0
    updates: int = 1
    passes: float = 1.0
    scoring: float = 0.0  # seconds from the end of a reply to its score


@dataclass(frozen=True)
class Trouble:
    """What goes wrong: engines of uneven speed (standard deviation of the logarithm), and GPUs that fail.

    hours      mean time between failures of one GPU, 0: none fails;  restart: seconds until its work goes on
    """

    uneven: float = 0.0
    hours: float = 0.0
    restart: float = 300.0


CALM = Trouble()


@dataclass
class Outcome:
    """What a simulated run took. Means are over the steps after the first `1 + lag`, which fill the pipeline."""

    step_seconds: float
    tokens_per_second: float
    sampler_idle: float
    trainer_idle: float
    staleness: float
    stalest: int
    failures: int
    steps: list[float] = field(default_factory=list)


def simulate(
    job: Job, placement: Placement, rates: Rates, *, steps: int = 6, seed: int = 0, trouble: Trouble = CALM
) -> Outcome:
    """The outcome of so many steps after the pipeline has filled."""
    slots = decode_slots(job.model, job.gpu, placement.tensor, job.lengths.mean + job.prompt)
    if slots < 1:
        raise ValueError(
            f"{placement.tensor} x GPUs cannot hold {job.model.name} and one reply; give an engine more GPUs"
        )
    return _Simulation(job, placement, rates, 1 + placement.lag + steps, seed, trouble, slots).run()


@dataclass
class _Engine:
    """Replies on one engine. clock: tokens that each active reply would have if it had been there from the start."""

    speed: float
    active: list[tuple[float, int, float, int]] = field(default_factory=list)  # end, reply, start, version
    clock: float = 0.0
    time: float = 0.0
    started: float = 0.0  # the sum of the clocks at which active replies started
    token: float = 0.0  # seconds of the next token
    stamp: int = 0  # events that were planned under an earlier stamp are void
    busy: float = 0.0
    down: float = 0.0  # the time until which it is restarted


class _Simulation:
    def __init__(
        self, job: Job, placement: Placement, rates: Rates, steps: int, seed: int, trouble: Trouble, slots: int
    ) -> None:
        self.job, self.placement, self.rates, self.steps, self.trouble, self.slots = (
            job,
            placement,
            rates,
            steps,
            trouble,
            slots,
        )
        self.random = np.random.default_rng(seed + 1)
        self.lengths = job.lengths.draw(job.replies * (steps + placement.lag + 1), seed)
        speeds = np.exp(trouble.uneven * self.random.standard_normal(placement.sampling // placement.tensor))
        self.engines = [_Engine(float(speed)) for speed in speeds]
        self.events: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self.count = 0
        self.now = 0.0
        self.version = 0  # published
        self.next = 0  # the next reply to start
        self.again: deque[int] = deque()  # replies that a failure has cut
        self.scored: deque[tuple[int, int]] = deque()  # reply, version under which it was started
        self.learning = False
        self.learnt_busy = 0.0
        self.ends: list[float] = []
        self.stale: list[int] = []
        self.failures = 0
        self.begun = 0.0  # when the steps that count begin
        self.measured = (0.0, 0.0)  # busy seconds of samplers and trainer until then

    def run(self) -> Outcome:
        for number, engine in enumerate(self.engines):
            self._fill(number, engine)
            self._plan_failure(number)
        while self.events and len(self.ends) < self.steps:
            self.now, _, action, arguments = heapq.heappop(self.events)
            action(*arguments)
        return self._outcome()

    def _at(self, time: float, action: Callable[..., None], *arguments: object) -> None:
        self.count += 1
        heapq.heappush(self.events, (time, self.count, action, arguments))

    # samplers

    def _fill(self, number: int, engine: _Engine) -> None:
        """Give free slots their replies, and plan the engine's next event."""
        self._advance(engine)
        allowed = min(len(self.lengths), (self.version + 1 + self.placement.lag) * self.job.replies)
        share = -(-self.job.replies // len(self.engines))  # a queue is divided evenly, not filled from the first
        new = 0
        while self.now >= engine.down and len(engine.active) < min(self.slots, share * (1 + self.placement.lag)):
            if self.again:
                reply = self.again.popleft()
            elif self.next < allowed:
                reply, self.next = self.next, self.next + 1
            else:
                break
            heapq.heappush(engine.active, (engine.clock + self.lengths[reply], reply, engine.clock, self.version))
            engine.started += engine.clock
            new += 1
        self._plan(number, engine, new)

    def _plan(self, number: int, engine: _Engine, new: int = 0) -> None:
        engine.stamp += 1
        batch = len(engine.active)
        if not batch:
            return
        context = batch * (self.job.prompt + engine.clock) - engine.started
        job = self.job
        seconds = decode_seconds(job.model, job.gpu, self.rates, self.placement.tensor, batch, context)
        engine.token = seconds / engine.speed
        tokens = min(engine.active[0][0] - engine.clock, STRIDE)
        prefill = prefill_seconds(job.model, job.gpu, self.placement.tensor, new * job.prompt) / engine.speed
        engine.time = max(self.now, engine.down) + prefill
        engine.busy += prefill
        self._at(engine.time + tokens * engine.token, self._decoded, number, engine.stamp)

    def _advance(self, engine: _Engine) -> None:
        """Move the engine's clock to now."""
        if engine.active and self.now > engine.time:
            moved = (self.now - engine.time) / engine.token
            engine.busy += self.now - engine.time
            engine.clock, engine.time = engine.clock + moved, self.now

    def _decoded(self, number: int, stamp: int) -> None:
        engine = self.engines[number]
        if stamp != engine.stamp:
            return
        self._advance(engine)
        while engine.active and engine.active[0][0] <= engine.clock + 1e-6:
            _, reply, start, version = heapq.heappop(engine.active)
            engine.started -= start
            self._at(self.now + self.job.scoring, self._score, reply, version)
        self._fill(number, engine)

    # trainer

    def _score(self, reply: int, version: int) -> None:
        self.scored.append((reply, version))
        self._learn()

    def _learn(self) -> None:
        if self.learning or len(self.scored) < self.job.replies:
            return
        self.learning = True
        batch = [self.scored.popleft() for _ in range(self.job.replies)]
        tokens = sum(self.lengths[reply] for reply, _ in batch) + self.job.prompt * len(batch)
        if len(self.ends) > self.placement.lag:
            self.stale += [len(self.ends) - version for _, version in batch]
        job, place = self.job, self.placement
        work = Work(job.replies, tokens, job.lengths.longest + job.prompt, job.updates, job.passes)
        seconds = learn_seconds(job.model, job.gpu, self.rates, place.trainers, place.parallel, work) + self.rates.fixed
        seconds += self._lost(place.trainers, seconds)
        self.learnt_busy += seconds
        self._at(self.now + seconds, self._learnt)

    def _learnt(self) -> None:
        seconds = publish_seconds(self.job.model, self.job.gpu, self.rates, apart=bool(self.placement.samplers))
        for number, engine in enumerate(self.engines):  # they pause, keep what they have, and resume under new weights
            self._advance(engine)
            engine.stamp += 1
            engine.down = max(engine.down, self.now + seconds)
            self._at(engine.down, self._resume, number)
        self._at(self.now + seconds, self._published)

    def _resume(self, number: int) -> None:
        self._fill(number, self.engines[number])

    def _published(self) -> None:
        self.version += 1
        self.learning = False
        self.ends.append(self.now)
        if len(self.ends) == 1 + self.placement.lag:
            self.begun = self.now
            self.measured = (sum(engine.busy for engine in self.engines), self.learnt_busy)
        for number, engine in enumerate(self.engines):
            self._fill(number, engine)
        self._learn()

    # failures

    def _lost(self, gpus: int, seconds: float) -> float:
        """Seconds that failures of the trainer's GPUs add to a step: it is retried from the weights before it."""
        if not self.trouble.hours:
            return 0.0
        lost = 0.0
        while (first := self.random.exponential(self.trouble.hours * 3600 / gpus)) < seconds:
            lost += first + self.trouble.restart
            self.failures += 1
            if lost > 1000 * seconds:
                raise ValueError(
                    "a step almost never ends before one of its GPUs fails; the cluster is too large for it"
                )
        return lost

    def _plan_failure(self, number: int) -> None:
        if self.trouble.hours:
            wait = self.random.exponential(self.trouble.hours * 3600 / self.placement.tensor)
            self._at(self.now + wait, self._fail, number)

    def _fail(self, number: int) -> None:
        """An engine loses its replies; others begin them again."""
        engine = self.engines[number]
        self._advance(engine)
        self.failures += 1
        self.again += [reply for _, reply, _, _ in engine.active]
        engine.active, engine.started = [], 0.0
        engine.stamp += 1
        engine.down = self.now + self.trouble.restart
        self._at(engine.down, self._resume, number)
        for other, alive in enumerate(self.engines):
            if other != number:
                self._fill(other, alive)
        self._plan_failure(number)

    def _outcome(self) -> Outcome:
        first = self.placement.lag
        took = [float(x) for x in np.diff(self.ends[first:])]
        whole = float(self.ends[-1] - self.begun)
        sampled = (sum(engine.busy for engine in self.engines) - self.measured[0]) / len(self.engines)
        tokens = (self.job.lengths.mean + self.job.prompt) * self.job.replies * len(took)
        return Outcome(
            step_seconds=whole / len(took),
            tokens_per_second=float(tokens / whole),
            sampler_idle=float(max(0.0, 1 - sampled / whole)),
            trainer_idle=float(max(0.0, 1 - (self.learnt_busy - self.measured[1]) / whole)),
            staleness=float(np.mean(self.stale)) if self.stale else 0.0,
            stalest=max(self.stale, default=0),
            failures=self.failures,
            steps=took,
        )
