"""A policy on its way away from the start: what the reward that it learns from says of it, and what is true.

Scaling Laws for Reward Model Overoptimization (arXiv 2210.10760): proxy and gold reward over the KL between the policy
and its start. The proxy rises all the way; the gold reward rises, turns and falls.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from burnish.core.types import Group
from burnish.evals.evaluate import Interval, interval
from burnish.models.build import Models

LOG_PROBS = 8192  # tokens of a forward pass


@dataclass(frozen=True)
class Point:
    """The policy after a step: KL from the start, proxy and gold reward, with 95% intervals over tasks."""

    step: int
    kl: Interval
    proxy: Interval
    gold: Interval


def log_ratios(models: Models, groups: Sequence[Group], start: str = "ref") -> list[list[float]]:
    """log pi(y) - log pi_start(y) of every reply, summed over its tokens.

    Its mean over replies of pi is an unbiased estimate of KL(pi, pi_start); a single one may be below 0.
    """
    traces = [trace for group in groups for trace in group.traces]
    masks = [trace.by("policy") for trace in traces]
    now = models["policy"].streams(traces, masks, {"logp"}, LOG_PROBS)
    then = models[start].streams(traces, masks, {"logp"}, LOG_PROBS)
    flat = iter(float((a["logp"] - b["logp"]).nansum()) for a, b in zip(now, then, strict=True))
    return [[next(flat) for _ in group.traces] for group in groups]


def point(step: int, ratios: list[list[float]], proxy: list[list[float]], gold: list[list[float]]) -> Point:
    """The numbers of one policy: each task counts once. A gold standard that cannot score a reply leaves it out."""

    def of(rows: list[list[float]]) -> Interval:
        known = [[x for x in row if math.isfinite(x)] for row in rows]
        return interval([statistics.fmean(row) for row in known if row])

    return Point(step, of(ratios), of(proxy), of(gold))


def turning(points: Sequence[Point]) -> Point:
    """The point with the highest gold reward: the first of equals."""
    return max(points, key=lambda one: one.gold.mean)


def said(points: Sequence[Point]) -> str:
    """What the curve shows, in a sentence."""
    best, last = turning(points), points[-1]
    where = f"the gold reward is highest after step {best.step} (KL {best.kl.mean:.2f})"
    if best is last:
        return f"{where}, the last: nothing is over-optimised yet"
    proxy, gold = last.proxy.mean - best.proxy.mean, last.gold.mean - best.gold.mean
    sure = last.gold.high < best.gold.low
    return (
        f"{where}; from there to step {last.step} the reward changes by {proxy:+.3f} and the gold reward by {gold:+.3f}"
        + ("" if sure else ", within its interval")
    )
