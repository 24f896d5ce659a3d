"""Draws that learn which source to draw from: a bandit over the sources of a mixture, told by advantages.

The signal of a source is the mean |A| of its replies: large where some are right and some are wrong, 0 where all are
alike. With binary rewards that are divided by their deviation its expectation is 2 sqrt(p (1 - p)), highest at p = 1/2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import torch

from burnish.core import randomness
from burnish.core.parts import Draw, Stateful, names
from burnish.core.state import State
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.draw.tasks import tasks_of
from burnish.tasks.mixture import FROM, Mixture


class Bandit(Stateful, Protocol):
    """Scores of the sources, by name."""

    def shares(self) -> dict[str, float]:
        """The probability of each source."""
        ...

    def heard(self, source: str, advantages: list[float]) -> None:
        """The |A| of all replies that a step had from a source."""
        ...


class MovingValues:
    """SEC (arXiv 2505.14970): Q <- (1 - alpha) Q + alpha mean |A|, from 0;  p = softmax(Q / temperature)."""

    name = "sec"

    def __init__(self, sources: Sequence[str], alpha: float, temperature: float) -> None:
        self.alpha, self.temperature = alpha, temperature
        self.values = dict.fromkeys(sources, 0.0)

    def shares(self) -> dict[str, float]:
        return softmax({name: value / self.temperature for name, value in self.values.items()})

    def heard(self, source: str, advantages: list[float]) -> None:
        mean = sum(advantages) / len(advantages)
        self.values[source] = (1 - self.alpha) * self.values[source] + self.alpha * mean

    def state_dict(self) -> State:
        return {"values": self.values}

    def load_state_dict(self, state: State) -> None:
        self.values = {name: float(value) for name, value in state["values"].items()}


class UpperBounds:
    """DUMP (arXiv 2504.09710): mean |A| of the last `window` replies + sqrt(2 ln(n + 1) / (n_d + 1)), a softmax of it.

    n_d: all replies that a source ever had, n their sum
    """

    name = "dump"

    def __init__(self, sources: Sequence[str], window: int, temperature: float) -> None:
        self.window, self.temperature = window, temperature
        self.recent: dict[str, list[float]] = {name: [] for name in sources}
        self.counts = dict.fromkeys(sources, 0)

    def scores(self) -> dict[str, float]:
        """The score of each source."""
        total = sum(self.counts.values())
        return {
            name: (sum(seen) / len(seen) if seen else 0.0)
            + math.sqrt(2 * math.log(total + 1) / (self.counts[name] + 1))
            for name, seen in self.recent.items()
        }

    def shares(self) -> dict[str, float]:
        return softmax({name: score / self.temperature for name, score in self.scores().items()})

    def heard(self, source: str, advantages: list[float]) -> None:
        self.recent[source] = (self.recent[source] + advantages)[-self.window :]
        self.counts[source] += len(advantages)

    def state_dict(self) -> State:
        return {"recent": self.recent, "counts": self.counts}

    def load_state_dict(self, state: State) -> None:
        self.recent = {name: [float(x) for x in seen] for name, seen in state["recent"].items()}
        self.counts = {name: int(count) for name, count in state["counts"].items()}


def softmax(logits: dict[str, float]) -> dict[str, float]:
    """exp(x) / sum exp(x)"""
    most = max(logits.values())
    weights = {name: math.exp(value - most) for name, value in logits.items()}
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


class _Places:
    """How many tasks of each source were drawn: the next one's place in its shuffled sequence."""

    def __init__(self, name: str, sources: Sequence[str]) -> None:
        self.name = f"{name} places"
        self.drawn = dict.fromkeys(sources, 0)

    def state_dict(self) -> State:
        return {"drawn": self.drawn}

    def load_state_dict(self, state: State) -> None:
        self.drawn = {name: int(count) for name, count in state["drawn"].items()}


def by_bandit(mixture: Mixture, make: Callable[[list[str]], Bandit], old: Draw) -> Draw:
    """In place of `old`: each slot of a batch draws a source by the bandit, and the next task of that source."""
    by_name = {one.name: source for one, source in zip(mixture.ingredients, mixture.sources(), strict=True)}
    bandit, places = make(list(by_name)), _Places("bandit", list(by_name))

    def call(step: Step) -> list[Task]:
        clock, shares = step.clock, bandit.shares()
        dice = randomness.rng(clock.seed, "bandit", clock.step, clock.tick)
        chosen = dice.choices(list(shares), list(shares.values()), k=step.settings.prompts)
        for name, share in shares.items():
            step.notes.add(f"draw/{name}", share)
        return [_next(name, clock.seed, step) for name in chosen]

    def _next(name: str, seed: int, step: Step) -> Task:
        source, place = by_name[name], places.drawn[name]
        places.drawn[name] += 1
        size = source.size("train")
        if size is None:
            index = place + (seed << 32)
        else:
            epoch, inside = divmod(place, size)
            index = randomness.placed(inside, size, seed, "bandit", name, epoch)
        [task] = tasks_of(source, "train", [index], step)
        return replace(task, given={**task.given, FROM: name})

    def saw(groups: list[Group], step: Step) -> None:
        heard: dict[str, list[float]] = {}
        for group in groups:
            for trace in group.traces:
                if "adv" not in trace.streams:
                    raise ValueError(
                        f"a {bandit.name} curriculum learns from advantages, which this method has none of; use a "
                        "method with advantages, such as grpo or ppo"
                    )
                own = trace.streams["adv"][trace.by("policy")]
                if len(own) and not bool(torch.isnan(own).any()):
                    heard.setdefault(group.task.given[FROM], []).append(float(own.abs().mean()))
        for name, advantages in heard.items():
            bandit.heard(name, advantages)

    return Draw(
        name=f"by_bandit({bandit.name})",
        call=call,
        heldout=old.heldout,
        saw=saw,
        writes=old.writes | names("given", [FROM]),
        state=(bandit, places),
    )
