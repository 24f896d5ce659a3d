"""A search tree: nodes with visits and values, rules that choose where to go, backups, and what is read off it.

A node's state is whatever the caller searches over: an episode with its environment, the beginning of a reply. Four
functions make a search out of it:

    propose(nodes)            add children to each of these leaves
    evaluate(nodes)           a value for each, and the node from which it is backed up (deeper, where nodes were added)
    rule(parent, child)       how much a child deserves the next visit; the largest is chosen, the first of equals
    backup(node, value)       what a node makes of a value that was found below it

The trees of all tasks grow together, one visit each per round, so that a model samples for all of them at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Generic, TypeVar

State = TypeVar("State")


@dataclass(eq=False)
class Node(Generic[State]):
    """A node. prior: its share of the proposals' probability; over: nothing can follow it; facts: numbers by name."""

    state: State
    parent: Node[State] | None = None
    prior: float = 1.0
    over: bool = False
    visits: int = 0
    value: float = 0.0
    expanded: bool = False
    children: list[Node[State]] = field(default_factory=list)
    facts: dict[str, float] = field(default_factory=dict)

    def add(self, state: State, *, prior: float = 1.0, over: bool = False) -> Node[State]:
        """A new child."""
        self.children.append(Node(state, self, prior, over))
        return self.children[-1]

    def path(self) -> list[Node[State]]:
        """The nodes from the root to this one."""
        return [*(self.parent.path() if self.parent else ()), self]

    @property
    def closed(self) -> bool:
        """Whether there is nothing left to find: it was visited, and it or all below it is over."""
        return self.visits > 0 and (self.over or (self.expanded and all(child.closed for child in self.children)))


Rule = Callable[[Node[Any], Node[Any]], float]  # (parent, child) -> how much the child deserves the next visit
Value = Callable[[Node[Any]], float]
Backup = Callable[[Node[Any], float], None]
Propose = Callable[[list[Node[State]]], None]
Evaluate = Callable[[list[Node[State]]], list[tuple[Node[State], float]]]


def value_of(node: Node[Any]) -> float:
    """The value that was backed up to a node; 0 before the first visit."""
    return node.value


# --------------------------------------------------------------------------------------------------------------- rules


def uct(c: float, value: Value = value_of) -> Rule:
    """Q + c sqrt(ln N / n), N visits of the parent, n of the child; a child that was never visited comes first.

    Agent-R has c = 0.25 (arXiv 2501.11425).
    """
    return lambda parent, child: (
        math.inf if not child.visits else value(child) + c * math.sqrt(math.log(parent.visits) / child.visits)
    )


def ucb_after_one(c: float, value: Value = value_of) -> Rule:
    """Q + c sqrt(ln N / (1 + n)): no child is infinitely attractive, so a prior opinion in Q orders new ones (Agent Q,
    arXiv 2408.07199).
    """
    return lambda parent, child: value(child) + c * math.sqrt(math.log(max(1, parent.visits)) / (1 + child.visits))


def log_puct(c: float, value: Value = value_of) -> Rule:
    """Q + c p sqrt(ln N) / (1 + n), p the prior: 1 + n stands outside the root (ARMAP's code, arXiv 2502.12130)."""
    return lambda parent, child: (
        value(child) + c * child.prior * math.sqrt(math.log(max(1, parent.visits))) / (1 + child.visits)
    )


def puct(c: float, value: Value = value_of) -> Rule:
    """Q + c p sqrt(N) / (1 + n), p the prior (AlphaZero's rule without its slow growth of c)."""
    return lambda parent, child: value(child) + c * child.prior * math.sqrt(parent.visits) / (1 + child.visits)


# ------------------------------------------------------------------------------------------------------------- backups


def running_mean(node: Node[Any], value: float) -> None:
    """Q <- (N Q + value) / (N + 1), N <- N + 1."""
    node.value = (node.visits * node.value + value) / (node.visits + 1)
    node.visits += 1


def running_max(node: Node[Any], value: float) -> None:
    """Q <- max(Q, value): of what is below a node the best counts; N <- N + 1."""
    node.value = max(node.value, value) if node.visits else value
    node.visits += 1


def mean_of_children(node: Node[Any], value: float) -> None:
    """Q <- sum n_i Q_i / sum n_i over the children; a node without visited children takes the value; N <- N + 1."""
    visits = sum(child.visits for child in node.children)
    node.value = sum(child.visits * child.value for child in node.children) / visits if visits else value
    node.visits += 1


def back_up(node: Node[Any], value: float, backup: Backup) -> None:
    """Pass a value from a node up to the root."""
    for each in reversed(node.path()):
        backup(each, value)


# -------------------------------------------------------------------------------------------------------------- search


def choose(node: Node[State], rule: Rule) -> Node[State] | None:
    """The child that the rule likes best among those that are not closed; None where all are."""
    found = [child for child in node.children if not child.closed]
    return max(found, key=lambda child: rule(node, child), default=None)


def descend(root: Node[State], rule: Rule) -> Node[State]:
    """The first node on the way down that has not been expanded, or is over."""
    node = root
    while node.expanded and (child := choose(node, rule)) is not None:
        node = child
    return node


def search(
    roots: Sequence[Node[State]],
    rounds: int,
    *,
    propose: Propose[State],
    evaluate: Evaluate[State],
    rule: Rule,
    backup: Backup = running_mean,
) -> None:
    """Grow trees: in each round, one visit to each that is not closed.

    A visit goes down by the rule to a node that was not expanded yet. A node that was visited before (and the root) is
    expanded, and the visit goes on to the child that the rule likes best. What is found there is backed up.
    """
    for _ in range(rounds):
        reached = [descend(root, rule) for root in roots if not root.closed]
        if not reached:
            return
        fresh = [node for node in reached if not node.over and (node.visits or node.parent is None)]
        propose(fresh)
        for node in fresh:
            node.expanded = True
        chosen = [(choose(node, rule) if node.expanded else None) or node for node in reached]
        for node, value in evaluate(chosen):
            back_up(node, value, backup)


# ---------------------------------------------------------------------------------------------------------- extractors


def nodes(root: Node[State]) -> Iterator[Node[State]]:
    """The root and all nodes below it, parents before their children."""
    yield root
    for child in root.children:
        yield from nodes(child)


def ends(root: Node[State]) -> list[Node[State]]:
    """The visited nodes that are over."""
    return [node for node in nodes(root) if node.over and node.visits]


def best_path(root: Node[State], value: Value = value_of) -> list[Node[State]]:
    """From the root, always on to the visited child with the largest value, the first of equals."""
    path = [root]
    while visited := [child for child in path[-1].children if child.visits]:
        path.append(max(visited, key=value))
    return path


def sibling_pairs(root: Node[State], gap: float, value: Value = value_of) -> Iterator[tuple[Node[State], Node[State]]]:
    """All pairs (better, worse) of visited siblings whose values differ by more than the gap."""
    for node in nodes(root):
        for a, b in combinations([child for child in node.children if child.visits], 2):
            if abs(value(a) - value(b)) > gap:
                yield (a, b) if value(a) > value(b) else (b, a)


def shared_path(a: Node[State], b: Node[State]) -> list[Node[State]]:
    """The nodes with which the paths to two nodes begin."""
    return [one for one, other in zip(a.path(), b.path(), strict=False) if one is other]
