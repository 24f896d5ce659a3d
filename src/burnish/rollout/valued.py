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


def blended(first: Worth, second: Worth, alpha: float) -> Worth:
    """(1 - alpha) first + alpha second; at 0 and 1 the other one is not asked."""
    if alpha in (0, 1):
        return first if alpha == 0 else second

    def call(trees: ReplyTrees, nodes: list[Branch]) -> list[float]:
        both = zip(first.call(trees, nodes), second.call(trees, nodes), strict=True)
        return [(1 - alpha) * a + alpha * b for a, b in both]

    return Worth(call, first.reads | second.reads)


# ----------------------------------------------------------------------------------------------- when it gets its value


def no_value_yet(trees: ReplyTrees, children: list[Branch]) -> None:
    """Children have no value before their first visit."""


def at_visit(worth: Worth) -> Valuation:
    """A node is valued when it is visited first (AlphaZero's order)."""

    def visit(trees: ReplyTrees, found: list[Branch]) -> list[tuple[Branch, float]]:
        return list(zip(found, worth.call(trees, found), strict=True))

    return Valuation(no_value_yet, visit, worth.reads)


def with_siblings(worth: Worth) -> Valuation:
    """All children of a node are valued when it is expanded, and each value is backed up (MedS3)."""

    def visit(trees: ReplyTrees, found: list[Branch]) -> list[tuple[Branch, float]]:
        beside = [node.parent.children if node.parent is not None else [node] for node in found]
        new = list(dict.fromkeys(node for some in beside for node in some if not node.known))
        return list(zip(new, worth.call(trees, new), strict=True)) if new else []

    return Valuation(no_value_yet, visit, worth.reads)


def at_birth(worth: Worth) -> Valuation:
    """All children are valued when they are added and count as visited once; the node above is backed up (x1)."""

    def born(trees: ReplyTrees, children: list[Branch]) -> None:
        assign_values(trees, children, worth)
        for child in children:
            child.visits = 1

    def visit(trees: ReplyTrees, found: list[Branch]) -> list[tuple[Branch, float]]:
        above = [node if node.expanded or node.parent is None else node.parent for node in found]
        return [(node, node.value) for node in above]

    return Valuation(born, visit, worth.reads)


def looking_ahead(worth: Worth, alpha: float, steps: int, width: int) -> Valuation:
    """All children are valued when they are added; on its visit a node looks ahead (ReST-MCTS*).

    The look-ahead goes on greedily for at most `steps` steps: of `width` proposals the one with the largest value, and
    so on. V <- (1 - alpha) V + alpha x the largest value that was met. What was proposed on the way is not kept.
    alpha 0 has no look-ahead.
    """

    def born(trees: ReplyTrees, children: list[Branch]) -> None:
        assign_values(trees, children, worth)

    def visit(trees: ReplyTrees, found: list[Branch]) -> list[tuple[Branch, float]]:
        best: dict[Branch, float] = {}
        at = {node: node for node in found if not node.over and not node.expanded and alpha > 0}
        for _ in range(steps):
            if not at:
                break
            proposed = trees.grow([here for here in at.values() for _ in range(width)], "ahead")
            values = dict(zip(proposed, worth.call(trees, proposed), strict=True))
            for node, here in list(at.items()):
                top = max(here.children, key=lambda child: values[child])
                here.children = []
                best[node] = max(best.get(node, values[top]), values[top])
                at[node] = top
                if top.over:
                    del at[node]
        return [(node, (1 - alpha) * node.value + alpha * best.get(node, node.value)) for node in found]

    return Valuation(born, visit, worth.reads)


def assign_values(trees: ReplyTrees, children: list[Branch], worth: Worth) -> None:
    for child, value in zip(children, worth.call(trees, children), strict=True):
        child.value, child.valued = value, True
