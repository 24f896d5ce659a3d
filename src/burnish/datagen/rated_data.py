"""Rows with what a model makes of them: pass rate, mean and variance of its scores, and a reply of its own."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from burnish.core import randomness
from burnish.core.parts import Part
from burnish.core.scorer import is_failed
from burnish.core.step import Settings, Step
from burnish.core.types import Clock, Group, Trace
from burnish.datagen.preference_data import AT_ONCE, Made, Row, is_cut_off, task_at
from burnish.datagen.stored_rows import row_at, row_of
from burnish.models.build import Models
from burnish.rollout.sample import sample
from burnish.score.judge import reply_text
from burnish.tasks.resolve import datasets_of
from burnish.tasks.source import Source

REPLIES = ("keep", "best", "shortest", "attempts")


@dataclass(frozen=True)
class Rating:
    """How rows are rated and which are kept.

    threshold           a reply is right if it scores more
    min_rate, max_rate  rows whose share of right replies is outside are left out
    reply               the completion of a row: that of the data (keep), or of the model's own right replies the best,
                        the shortest, or all attempts up to the first right one; rows without a right reply are left out
    """

    n: int = 8
    temperature: float = 1.0
    threshold: float = 0.5
    min_rate: float = 0.0
    max_rate: float = 1.0
    reply: str = "keep"


def rate(
    models: Models,
    source: Source,
    settings: Settings,
    rating: Rating,
    scorer: Part,
    *,
    start: int,
    count: int,
    seed: int,
) -> Iterator[list[Made]]:
    """The rows of the training prompts [start, count), a batch of prompts at a time; repeatable for a seed."""
    rollout = sample(rating.n, temperature=rating.temperature, tag="rate")
    batch = max(1, AT_ONCE // rating.n)
    for first in range(start, count, batch):
        places = range(first, min(first + batch, count))
        tasks = [task_at(source, i, seed) for i in places]
        step = Step(Clock(0, 1, randomness.key_of("rate", seed)), models, settings)
        groups = scorer.call(rollout.call(tasks, step), step)
        made = []
        for i, group in zip(places, groups, strict=True):
            one = Made(i, replies=len(group.traces), cut_off=sum(map(is_cut_off, group.traces)))
            one.failed = sum(map(is_failed, group.traces))
            group.traces = [trace for trace in group.traces if not is_failed(trace)]
            one.rows = [] if not group.traces else _rows(group, i, source, rating, models, seed)
            made.append(one)
        yield made


def measured(scores: list[float], threshold: float) -> dict[str, float]:
    """The share of right replies, and the mean and the variance (of the population) of their scores."""
    right = sum(score > threshold for score in scores) / len(scores)
    return {"pass_rate": right, "mean_score": statistics.fmean(scores), "score_variance": statistics.pvariance(scores)}


def _rows(group: Group, index: int, source: Source, rating: Rating, models: Models, seed: int) -> list[Row]:
    numbers = measured([trace.scores["reward"] for trace in group.traces], rating.threshold)
    if not rating.min_rate <= numbers["pass_rate"] <= rating.max_rate:
        return []
    if rating.reply == "keep":
        row = row_at(source, "train", index)[1] if datasets_of(source) else row_of(task_at(source, index, seed))
        return [{**row, **numbers}]
    chosen = own_reply(group.traces, rating.reply, rating.threshold)
    if not chosen:
        return []
    text = "\n".join(reply_text(trace, models["policy"].chat) for trace in chosen)
    return [{**row_of(group.task, text), **numbers}]


def own_reply(traces: list[Trace], rule: str, threshold: float) -> list[Trace]:
    """The traces whose texts, one after the other, are the completion: see Rating; empty if no reply is right."""
    right = [trace for trace in traces if trace.scores["reward"] > threshold and not is_cut_off(trace)]
    if not right:
        return []
    if rule == "attempts":
        ended = [trace for trace in traces if not is_cut_off(trace)]
        return ended[: ended.index(right[0]) + 1]
    keys: dict[str, Any] = {"best": lambda trace: -trace.scores["reward"], "shortest": len}
    return [min(right, key=keys[rule])]
