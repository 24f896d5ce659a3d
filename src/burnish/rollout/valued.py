"""How the nodes of a tree over replies get their values: by a model, by the verifier, by simulations, and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from burnish.rollout.reply_tree import Branch, ReplyTrees
from burnish.tasks.source import Source


@dataclass(frozen=True)
class Worth:
    """What nodes are worth, and what that reads."""

    call: Callable[[ReplyTrees, list[Branch]], list[float]]
    reads: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Valuation:
    """When nodes get their values.

    born   given all children that were just added
    visit  given the nodes that a round has reached: what is backed up, and from where
    """

    born: Callable[[ReplyTrees, list[Branch]], None]
    visit: Callable[[ReplyTrees, list[Branch]], list[tuple[Branch, float]]]
    reads: frozenset[str] = frozenset()


# ------------------------------------------------------------------------------------------------- what a node is worth


def by_model(model: str, low: float, high: float) -> Worth:
    """The model's score at the end of the step, clipped to [low, high]."""

    def call(trees: ReplyTrees, nodes: list[Branch]) -> list[float]:
        return [min(high, max(low, score)) for score in trees.scores(model, nodes)]

    return Worth(call, frozenset({f"model:{model}.score"}))


def simulated(source: Source, k: int, low: float = 0.0) -> Worth:
    """The mean score of k replies that the policy makes of a node; of one that is over, its own score.

    low: a score s in [0, 1] counts as low + (1 - low) s, so that -1 makes it [-1, 1].
    """

    def call(trees: ReplyTrees, nodes: list[Branch]) -> list[float]:
        found = trees.verdicts(source, nodes, k)
        return [low + (1 - low) * sum(one.score for one in some) / len(some) for some in found]

    return Worth(call)


def ends_by(source: Source, worth: Worth, low: float = 0.0) -> Worth:
    """The verifier's score of nodes that are over (from `low`, as in `simulated`); of others what `worth` says."""
    verified = simulated(source, 1, low)

    def call(trees: ReplyTrees, nodes: list[Branch]) -> list[float]:
        ends, others = [n for n in nodes if n.over], [n for n in nodes if not n.over]
        found = dict(zip(ends, verified.call(trees, ends), strict=True))
        found |= dict(zip(others, worth.call(trees, others) if others else [], strict=True))
        return [found[node] for node in nodes]

    return Worth(call, worth.reads)


# ----------------------------------------------------------------------------------------------- when it gets its value


def no_value_yet(trees: ReplyTrees, children: list[Branch]) -> None:
    """Children have no value before their first visit."""


def assign_values(trees: ReplyTrees, children: list[Branch], worth: Worth) -> None:
    for child, value in zip(children, worth.call(trees, children), strict=True):
        child.value, child.valued = value, True
