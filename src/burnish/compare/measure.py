"""Evaluate the trained model of a run on held-out tasks, with the same tasks and sampling seeds for every run.

The measure is that of evals/better.py. Where several methods are compared, they need one in common: their replies, if
the task can judge them, sampled at temperature 1.
"""

from __future__ import annotations

import hashlib
import statistics
from dataclasses import dataclass

import torch
from torch import nn

from burnish.core.step import Step
from burnish.core.types import Clock, Group
from burnish.evals.better import REWARD, Kind, kind_of, learned
from burnish.evals.evaluate import can_evaluate, evaluate
from burnish.evals.heldout import Asked, held_out
from burnish.run.train import Run

REPLIES = "replies"  # Job.measure of candidates that are judged by their replies, whatever they learn from


@dataclass(frozen=True)
class Measured:
    """Name and mean of the measure; of judged replies the number of correct ones to each task, or the mean rewards."""

    measure: str
    value: float
    replies: int = 0
    right: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()


def measured(run: Run, tasks: int, replies: int, *, by: str = "auto", done: bool = False) -> Measured:
    """Evaluate the run's product on the first held-out tasks; `done`: a method without training uses its own choice.

    by: auto, or REPLIES
    """
    if _kind(run, by) != "judged":
        asked = Asked(measure=run.config.options.eval_measure, whole=False)
        outcome = held_out(run.method, run.models, run.source, run.settings, tasks, asked)
        return Measured(outcome.name, outcome.value.mean)
    if done and not any(phase.learn.trainees for phase in run.method.phases):
        return _chosen(run, tasks)
    evaluation = evaluate(run.models, run.source, run.settings, tasks=tasks, k=replies, who=run.method.product)
    if evaluation.graded and run.config.options.eval_measure in ("auto", "reward"):
        scores = tuple(statistics.fmean(row) for row in evaluation.rewards)
        return Measured(REWARD, statistics.fmean(scores), scores=scores)
    right = tuple(sum(row) for row in evaluation.correct)
    return Measured("accuracy", sum(right) / (len(right) * replies), replies, right)


def _kind(run: Run, by: str) -> Kind:
    asked = run.config.options.eval_measure
    if by == REPLIES and asked == "auto" and run.method.generates and can_evaluate(run.source):
        return "judged"
    return kind_of(run.method, run.source, asked)


_STARTS: dict[tuple[object, ...], Measured] = {}  # cache of evaluations before training, by the digest of the weights


def measured_at_start(run: Run, tasks: int, replies: int, *, by: str = "auto") -> Measured:
    """`measured` before the first step, cached in this process for runs that start from the same weights."""
    if _kind(run, by) != "judged":
        return measured(run, tasks, replies, by=by)
    weights = _digest(run.models[run.method.product].module)
    options = run.config.options
    first = run.source.task("heldout", 0).key  # the task that judges need not be that of the options
    key = (
        weights,
        options.task,
        first,
        options.reward,
        options.eval_measure,
        run.settings.max_new_tokens,
        tasks,
        replies,
    )
    if key not in _STARTS:
        _STARTS[key] = measured(run, tasks, replies, by=by)
    return _STARTS[key]


def _digest(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _chosen(run: Run, tasks: int) -> Measured:
    """Evaluate one reply per task, the one that the method's select stage chooses."""
    size = run.source.size("heldout")
    heldout = [run.source.task("heldout", i) for i in range(tasks if size is None else min(tasks, size))]
    phase, step = run.method.phases[0], Step(Clock(0, 1, 0), run.models, run.settings)
    groups: list[Group] = phase.select.call(phase.score.call(phase.rollout.call(heldout, step), step), step)
    by_task = {group.task.key: group.traces[0].scores for group in groups if group.traces}
    chosen = [by_task.get(task.key, {}) for task in heldout]
    rewards = tuple(scores.get("reward", 0.0) for scores in chosen)
    if not learned(run.method, run.source) and any(reward not in (0.0, 1.0) for reward in rewards):
        return Measured(REWARD, statistics.fmean(rewards), scores=rewards)
    right = tuple(int(scores.get("correct", scores.get("reward", 0.0)) > 0.5) for scores in chosen)
    return Measured("accuracy", sum(right) / len(right), 1, right)
