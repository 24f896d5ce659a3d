"""Draws from rows with a known difficulty: in their order, from easy to hard, or those that fail more often."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from burnish.core import randomness
from burnish.core.parts import Draw, names
from burnish.core.state import State
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.draw.failed import PLACE
from burnish.draw.tasks import tasks_of
from burnish.tasks.source import Source

RATE = "pass_rate"  # the column that `burnish rate` writes


def in_order(source: Source, old: Draw) -> Draw:
    """In place of `old`: the rows of a dataset in the order in which they stand, again from the first after the last.

    Qwen2.5 (arXiv 2412.15115, section 4.3) processes prompts by decreasing variance of their rewards: `burnish rate
    --order variance` writes rows in this order.
    """
    size = rows_of(source, "in_order")

    def call(step: Step) -> list[Task]:
        n = step.settings.prompts
        return tasks_of(source, "train", [(step.clock.step * n + i) % size for i in range(n)], step)

    return replace(old, name="in_order", call=call)


def progressive_batches(
    rates: Sequence[float], batch: int, steps: int, width: float, seed: int = 0
) -> list[tuple[int, ...]]:
    """The rows of each of `steps` batches (Llama-Nemotron, arXiv 2505.00949, section 5.1).

        centre of step t = highest rate + (lowest - highest) t / (steps - 1)
        wanted of rate p = batch exp(-(p - centre)^2 / (2 width^2)) / sum over the rates

    Each batch takes, of every rate, the whole part of what is wanted, or what is left of it. Places that are still free
    go to the rates with most rows left. A row is used once until fewer rows than a batch are left; then all are there
    again. Rows of a rate, and within a batch, are in random order. The paper prints no width.
    """
    dice = randomness.rng(seed, "by_rate")
    levels = sorted(set(rates), reverse=True)
    pools: dict[float, list[int]] = {}
    batches = []
    for t in range(steps):
        if sum(map(len, pools.values())) < batch:
            pools = {level: [i for i, rate in enumerate(rates) if rate == level] for level in levels}
            for pool in pools.values():
                dice.shuffle(pool)
        centre = levels[0] + (levels[-1] - levels[0]) * t / max(1, steps - 1)
        far = [-((level - centre) ** 2) / (2 * width**2) for level in levels]
        weights = [math.exp(one - max(far)) for one in far]
        taken: list[int] = []
        for level, weight in zip(levels, weights, strict=True):
            wanted = min(math.floor(batch * weight / sum(weights)), len(pools[level]))
            taken += [pools[level].pop() for _ in range(wanted)]
        while len(taken) < min(batch, len(rates)):
            taken.append(max(pools.values(), key=len).pop())
        taken += dice.choices(range(len(rates)), k=batch - len(taken))  # fewer rows than a batch
        dice.shuffle(taken)
        batches.append(tuple(taken))
    return batches


def by_rate(source: Source, old: Draw, width: float) -> Draw:
    """In place of `old`: batches whose pass rates move from the easiest rows to the hardest."""
    size = rows_of(source, "by_rate")

    @lru_cache(maxsize=1)
    def rates() -> tuple[float, ...]:
        given = [source.task("train", i).given.get(RATE) for i in range(size)]
        missing = [i for i, rate in enumerate(given) if rate is None]
        if missing:
            raise ValueError(
                f"row {missing[0]} of task {source.name!r} has no {RATE!r}, by which by_rate draws; `burnish rate` "
                "writes it"
            )
        return tuple(float(rate) for rate in given if rate is not None)

    @lru_cache(maxsize=2)
    def batches(batch: int, steps: int, seed: int) -> list[tuple[int, ...]]:
        return progressive_batches(rates(), batch, steps, width, seed)

    def call(step: Step) -> list[Task]:
        chosen = batches(step.settings.prompts, step.clock.of, step.clock.seed)[step.clock.step]
        step.notes.add("draw/pass_rate", sum(rates()[i] for i in chosen), len(chosen))
        return tasks_of(source, "train", chosen, step)

    return replace(old, name=f"by_rate({width:g})", call=call)


class Successes:
    """The share of right replies that each row had when it was last drawn."""

    name = "successes"

    def __init__(self) -> None:
        self.rates: dict[int, float] = {}

    def weight(self, index: int) -> float:
        """1 - the share; 1 for a row that was not drawn yet."""
        return 1 - self.rates.get(index, 0.0)

    def state_dict(self) -> State:
        return {"rates": [[index, rate] for index, rate in self.rates.items()]}

    def load_state_dict(self, state: State) -> None:
        self.rates = {int(index): float(rate) for index, rate in state["rates"]}


def by_failure(source: Source, old: Draw, score: str = "reward") -> Draw:
    """In place of `old`: rows without replacement in proportion to 1 - s, s the success rate of their last replies.

    Kimi k1.5 (arXiv 2501.12599, section 2.3.4). A row that was never drawn counts as s = 0. Where fewer than a batch
    have s < 1, the others fill it, each as likely as the other.
    """
    size, known = rows_of(source, "prioritised"), Successes()

    def call(step: Step) -> list[Task]:
        clock, n = step.clock, min(step.settings.prompts, size)
        dice = randomness.rng(clock.seed, "prioritised", clock.step, clock.tick)
        keys = {i: (known.weight(i), dice.random()) for i in range(size)}
        # Efraimidis and Spirakis: the n largest u^(1/w) are a draw without replacement in proportion to w
        order = sorted(keys, key=lambda i: keys[i][1] ** (1 / keys[i][0]) if keys[i][0] > 0 else keys[i][1] - 1)
        chosen = order[-n:] + [dice.randrange(size) for _ in range(step.settings.prompts - n)]
        return [placed(task, i) for task, i in zip(tasks_of(source, "train", chosen, step), chosen, strict=True)]

    def saw(groups: list[Group], step: Step) -> None:
        for group in groups:
            if PLACE in group.task.given and group.traces:
                right = sum(trace.scores[score] > 0.5 for trace in group.traces)
                known.rates[int(group.task.given[PLACE])] = right / len(group.traces)

    written = old.writes | names("given", [PLACE])
    return replace(old, name="prioritised", call=call, ahead=False, saw=saw, writes=written, state=(*old.state, known))


def placed(task: Task, index: int) -> Task:
    """The task with its index in the source."""
    return replace(task, given={**task.given, PLACE: index})


def rows_of(source: Source, who: str) -> int:
    """The number of training rows; ValueError for a task without an end."""
    size = source.size("train")
    if size is None:
        raise ValueError(
            f"{who} draws rows of a dataset again and again, and task {source.name!r} has no end; `burnish rate` makes "
            "a dataset of it"
        )
    return size
