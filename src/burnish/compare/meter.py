"""The meter of a run: it counts what is sampled, learned from and computed, where it happens, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from burnish.cast.apart.engine import ApartEngine
from burnish.cast.forward import decoder
from burnish.cast.local import LocalEngine, Request, Sample
from burnish.compare.budget import Spent
from burnish.learn.learn import Learn, Move, descend
from burnish.nouns import Group, Trace
from burnish.run.train import Run
from burnish.step import Step


@dataclass
class Meter:
    """Counts while it is on; `spent` is the sum."""

    spent: Spent = field(default_factory=Spent)
    on: bool = True
    sampling: bool = False

    def attach(self, run: Run) -> None:
        """Listen to every member's engine and forward passes, and to every update of the method."""
        for member in run.cast:
            member.engine = _CountedEngine(member.engine, self)  # type: ignore[assignment]
            hook = self._forward(_weights(member.model))
            decoder(member.working.copy).register_forward_pre_hook(hook, with_kwargs=True)
        phases = tuple(replace(phase, learn=self._counted(phase.learn)) for phase in run.method.phases)
        run.method = replace(run.method, phases=phases)

    @contextmanager
    def off(self) -> Iterator[None]:
        """Inside, nothing counts: evaluations are nobody's cost."""
        self.on = False
        try:
            yield
        finally:
            self.on = True

    def add(self, **more: float) -> None:
        if self.on:
            self.spent = self.spent.plus(**more)

    def _forward(self, weights: int) -> Any:
        def hook(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
            read = kwargs.get("input_ids")
            read = kwargs.get("inputs_embeds") if read is None else read
            assert read is not None, "a decoder was called without tokens"
            passes = 6 if torch.is_grad_enabled() else 2  # forward 2, backward 4 operations a weight and position
            if not self.sampling:  # what the engine does is counted by what it reads and writes
                self.add(flops=float(passes * weights * read.shape[0] * read.shape[1]))

        return hook

    def _counted(self, plan: Learn) -> Learn:
        move: Move = plan.move or descend

        def counted(batch: list[Group], plan: Learn, step: Step) -> None:
            self._update(batch, plan)
            move(batch, plan, step)

        kept = {name: getattr(plan, name) for name in ("epochs", "minibatches", "temperature", "embed", "rest")}
        return Learn(*plan.terms, **kept, move=counted)

    def _update(self, batch: list[Group], plan: Learn) -> None:
        for trace in (trace for group in batch for trace in group.traces):
            trainees = {t.trainee for t in plan.terms if _claims(t.name, trace)}
            given = bool(trainees) and all(turn.logp is None for turn in trace.turns)
            self.add(trained=len(trace) * len(trainees), samples=int(given))


def _claims(term: str, trace: Trace) -> bool:
    members = trace.streams.get(f"member:{term}")
    return members is not None and bool(members.any())


class _CountedEngine:
    """An engine, with what it samples counted."""

    def __init__(self, engine: LocalEngine | ApartEngine, meter: Meter) -> None:
        self.engine, self.meter = engine, meter

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def generate(
        self, requests: list[Request], others: Sequence[nn.Module] = (), *more: Any, **named: Any
    ) -> list[Sample]:
        """The same; prompts that requests share are read once, and each of the models reads everything."""
        self.meter.sampling = True
        try:
            found = self.engine.generate(requests, others, *more, **named)
        finally:
            self.meter.sampling = False
        sampled = sum(len(sample.tokens) for sample in found)
        prompts = {tuple(request.prompt.tolist()) for request in requests}
        weights = sum(_weights(model) for model in (self.engine.model, *others))
        begun = sum(not request.said for request in requests)  # not those that go on
        self.meter.add(sampled=sampled, samples=begun, flops=2.0 * weights * (sampled + sum(map(len, prompts))))
        return found


def _weights(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())
