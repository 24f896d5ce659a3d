"""What shapes share: how one is made of a function from the replies of a group to their new rewards.

Traces that could not be scored are left out. Every shape has a coefficient at which it returns its input unchanged,
bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from burnish.core.method import Group, Part, Step, Trace
from burnish.core.parts import Stateful
from burnish.core.scorer import named_reward as component
from burnish.rewards import Scorer, is_failed

__all__ = ["Scored", "component", "mixed", "of_batch", "of_group"]
REWARD = "score:reward"


@dataclass(frozen=True)
class Scored:
    """The traces of a group that have a score, with their rewards before the shape."""

    group: Group
    traces: list[Trace]

    @property
    def rewards(self) -> list[float]:
        return [trace.scores["reward"] for trace in self.traces]

    @property
    def right(self) -> list[bool]:
        """Which replies are correct; raises ValueError where no verifier said so."""
        if any("correct" not in trace.scores for trace in self.traces):
            raise ValueError("no verifier says which replies are correct; use a task with a verifier, or --reward NAME")
        return [trace.scores["correct"] > 0 for trace in self.traces]

    @property
    def lengths(self) -> list[int]:
        """Tokens of each reply."""
        return [int(trace.by("policy").sum()) for trace in self.traces]


Change = Callable[[Scored, Step], list[float]]
ChangeAll = Callable[[list[Scored], Step], list[list[float]]]


def of_group(name: str, change: Change, *, coef: float = 1.0, reads: Iterable[str] = ()) -> Scorer:
    """A shape that gives the replies of one group new rewards; the identity where coef is 0."""
    return of_batch(name, lambda batch, step: [change(scored, step) for scored in batch], coef=coef, reads=reads)


def of_batch(
    name: str,
    change: ChangeAll,
    *,
    coef: float = 1.0,
    reads: Iterable[str] = (),
    state: tuple[Stateful, ...] = (),
) -> Scorer:
    """A shape that gives the replies of all groups new rewards; the identity where coef is 0."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        if not coef:
            return groups
        batch = [Scored(group, [trace for trace in group.traces if not is_failed(trace)]) for group in groups]
        batch = [scored for scored in batch if scored.traces]
        for scored, rewards in zip(batch, change(batch, step), strict=True):
            for trace, reward in zip(scored.traces, rewards, strict=True):
                trace.scores["reward"] = reward
        return groups

    read = frozenset({REWARD, "tokens:policy", *reads})
    return Scorer(part=Part(name=name, call=call, reads=read, updates=frozenset({REWARD}), state=state))


def mixed(before: float, after: float, coef: float) -> float:
    """(1 - coef) before + coef after; exactly the one or the other at 0 and 1."""
    return before if coef == 0 else after if coef == 1 else (1 - coef) * before + coef * after
