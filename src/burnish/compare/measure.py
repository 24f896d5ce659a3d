"""How good the product of a run is, task by task: the same held-out tasks and the same noise for every run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import nn

from burnish.nouns import Clock, Group
from burnish.run.evaluate import can_evaluate, evaluate
from burnish.run.heldout import held_out
from burnish.run.train import Run
from burnish.step import Step


@dataclass(frozen=True)
class Measured:
    """The measure's name, its mean, and how many of `replies` replies to each task were right (none: not judged by replies)."""

    measure: str
    value: float
    replies: int = 0
    right: tuple[int, ...] = ()


def measured(run: Run, tasks: int, replies: int, *, done: bool = False) -> Measured:
    """The run's product on the first held-out tasks; `done` asks what a method that trains nothing would answer."""
    if run.method.product != "policy" or not can_evaluate(run.source):
        outcome = held_out(run.method, run.cast, run.source, run.settings, tasks)
        return Measured(outcome.name, outcome.value.mean)
    if done and not any(phase.learn.terms for phase in run.method.phases):
        return _chosen(run, tasks)
    found = evaluate(run.cast, run.source, run.settings, tasks=tasks, k=replies)
    right = tuple(sum(row) for row in found.correct)
    return Measured("accuracy", sum(right) / (len(right) * replies), replies, right)


_STARTS: dict[tuple[object, ...], Measured] = {}  # what beginnings were worth, for as long as this process lives


def measured_at_start(run: Run, tasks: int, replies: int) -> Measured:
    """The same before the first step: runs that begin with the same weights answer the same, so it is asked only once."""
    if run.method.product != "policy" or not can_evaluate(run.source):
        return measured(run, tasks, replies)
    weights = _digest(run.cast[run.method.product].model)
    key = (weights, run.source.name, run.settings.max_new_tokens, tasks, replies)
    if key not in _STARTS:
        _STARTS[key] = measured(run, tasks, replies)
    return _STARTS[key]


def _digest(model: nn.Module) -> str:
    found = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        found.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        found.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


def _chosen(run: Run, tasks: int) -> Measured:
    """One reply to each task: the one that the method chooses."""
    size = run.source.size("heldout")
    asked = [run.source.task("heldout", i) for i in range(tasks if size is None else min(tasks, size))]
    phase, step = run.method.phases[0], Step(Clock(0, 1, 0), run.cast, run.settings)
    groups: list[Group] = phase.select.call(phase.score.call(phase.rollout.call(asked, step), step), step)
    kept = {group.task.key: group.traces[0].scores for group in groups if group.traces}
    chosen = [kept.get(task.key, {}) for task in asked]
    right = tuple(int(scores.get("correct", scores.get("reward", 0.0)) > 0.5) for scores in chosen)
    return Measured("accuracy", sum(right) / len(right), 1, right)
