"""Count the tokens, samples and FLOPs of a run, without changing its results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from burnish.compare.budget import Spent
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.engine.feed import Feed
from burnish.engine.protocol import ALONE, Engine, GenerateOptions
from burnish.engine.request import Request, Sample
from burnish.forward.module import decoder
from burnish.learn.batch import claims
from burnish.learn.learn import Learn, Move, descend, plan_of
from burnish.run.train import Run


@dataclass
class Meter:
    """Counters of a run's cost, in `spent`; they do not count while `on` is false."""

    spent: Spent = field(default_factory=Spent)
    on: bool = True
    sampling: bool = False

    def attach(self, run: Run) -> None:
        """Count the engine calls and forward passes of every model, and every update of the method."""
        for model in run.models:
            model.engine = _CountedEngine(model.engine, self, _weights(model.working.copy))
            hook = self._forward(_weights(model.module))
            decoder(model.working.copy).register_forward_pre_hook(hook, with_kwargs=True)
        phases = tuple(replace(phase, learn=self._counted(plan_of(phase))) for phase in run.method.phases)
        run.method = replace(run.method, phases=phases)

    @contextmanager
    def off(self) -> Iterator[None]:
        """Stop counting inside the block, because evaluations are not part of the budget."""
        self.on = False
        try:
            yield
        finally:
            self.on = True

    def add(self, **more: float) -> None:
        if self.on:
            self.spent = self.spent.plus(**more)

    def _forward(self, weights: int) -> Callable[[nn.Module, tuple[object, ...], dict[str, Any]], None]:
        def hook(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, Any]) -> None:
            inputs = kwargs.get("input_ids")
            inputs = kwargs.get("inputs_embeds") if inputs is None else inputs
            assert inputs is not None, "a decoder was called without tokens"
            operations = 6 if torch.is_grad_enabled() else 2  # per weight and position: forward 2, backward 4
            if not self.sampling:  # _CountedEngine counts the engine's forward passes by tokens
                self.add(flops=float(operations * weights * inputs.shape[0] * inputs.shape[1]))

        return hook

    def _counted(self, plan: Learn) -> Learn:
        move: Move = plan.move or descend

        def counted(batch: list[Group], plan: Learn, step: Step) -> None:
            self._update(batch, plan)
            move(batch, plan, step)

        return Learn(*plan.terms, **{**plan.settings(), "move": counted})

    def _update(self, batch: list[Group], plan: Learn) -> None:
        claimed = claims(batch, plan.terms)
        for g, k, trace in ((g, k, trace) for g, group in enumerate(batch) for k, trace in enumerate(group.traces)):
            trainees = {t.trainee for t in plan.terms if claimed[t.name].sizes[g][k]}
            given = bool(trainees) and all(turn.logp is None for turn in trace.turns)
            self.add(trained=len(trace) * len(trainees), samples=int(given))


class _CountedEngine:
    """An engine whose samples are counted."""

    def __init__(self, engine: Engine, meter: Meter, weights: int) -> None:
        self.engine, self.meter, self.weights = engine, meter, weights
        self.start, self.publish, self.end = engine.start, engine.publish, engine.end

    def generate(self, requests: list[Request], options: GenerateOptions = ALONE) -> list[Sample]:
        """Generate and count: a shared prompt is counted once, and every model of a mixture counts all tokens."""
        self.meter.sampling = True
        try:
            fed = None if options.feed is None else _CountedFeed(options.feed)
            samples = self.engine.generate(requests, replace(options, feed=fed))
            requests = [*requests, *(fed.taken if fed else ())]
        finally:
            self.meter.sampling = False
        sampled = sum(len(sample.tokens) for sample in samples)
        prompts = {tuple(request.prompt.tolist()) for request in requests}
        weights = self.weights + sum(_weights(runner.module) for runner in options.others)
        new = sum(not request.said for request in requests)  # replies that continue were counted before
        self.meter.add(sampled=sampled, samples=new, flops=2.0 * weights * (sampled + sum(map(len, prompts))))
        return samples


class _CountedFeed:
    """A feed that keeps the requests that the engine takes."""

    def __init__(self, feed: Feed) -> None:
        self.feed, self.rows = feed, feed.rows
        self.taken: list[Request] = []

    def take(self, wait: bool) -> list[Request]:
        new = self.feed.take(wait)
        self.taken += new
        return new


def _weights(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())
