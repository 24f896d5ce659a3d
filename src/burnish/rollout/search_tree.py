"""A search tree: nodes with visits and values, rules that choose where to go, backups, and what is read off it.

A node's state is whatever the caller searches over: an episode with its environment, the beginning of a reply. Four
functions make a search out of it:

    propose(nodes)            add children to each of these leaves
    evaluate(nodes)           values, each with the node from which it is backed up: the nodes themselves, or others
                              that were added below or beside them
    rule(parent, child)       how much a child deserves the next visit; the largest is chosen, of equals the one with
                              the larger value, then the first
    backup(node, value)       what a node makes of a value that was found below it

The trees of all tasks grow together, one visit each per round, so that a model samples for all of them at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Generic, TypeVar

State = TypeVar("State")


@dataclass(eq=False)
class Node(Generic[State]):
    """A node.

    prior   its share of the proposals' probability
    over    nothing can follow it
    key     what tells its state from others: proposals with one key are one child; None where they are not compared
    valued  it got its value when it was added, so that it is expanded on its first visit
    facts   numbers by name
    """

    state: State
    parent: Node[State] | None = None
    prior: float = 1.0
    over: bool = False
    key: Hashable = None
    visits: int = 0
    value: float = 0.0
    valued: bool = False
    expanded: bool = False
    children: list[Node[State]] = field(default_factory=list)
    facts: dict[str, float] = field(default_factory=dict)

    def add(self, state: State, *, prior: float = 1.0, over: bool = False, key: Hashable = None) -> Node[State]:
        """A new child."""
        self.children.append(Node(state, self, prior, over, key))
        return self.children[-1]

    def path(self) -> list[Node[State]]:
        """The nodes from the root to this one."""
        return [*(self.parent.path() if self.parent else ()), self]

    @property
    def known(self) -> bool:
        """Whether it has a value: it was visited, or valued when it was added."""
        return self.visits > 0 or self.valued

    @property
    def closed(self) -> bool:
        """Whether there is nothing left to find: it was visited, and it or all below it is over."""
        return self.visits > 0 and (self.over or (self.expanded and all(child.closed for child in self.children)))


Rule = Callable[[Node[Any], Node[Any]], float]  # (parent, child) -> how much the child deserves the next visit
Value = Callable[[Node[Any]], float]
Backup = Callable[[Node[Any], float], None]
Propose = Callable[[list[Node[State]]], None]
Evaluate = Callable[[list[Node[State]]], list[tuple[Node[State], float]]]


def value_of(node: Node[object]) -> float:
    """The value that was backed up to a node; 0 before the first visit."""
    return node.value


# --------------------------------------------------------------------------------------------------------------- rules


def uct(c: float, value: Value = value_of, *, unvisited: float = math.inf) -> Rule:
    """Q + c sqrt(ln N / n), N visits of the parent, n of the child; `unvisited` for a child that was never visited.

    Agent-R has c = 0.25 (arXiv 2501.11425), MedS3 c = 2 and unvisited = 5 (arXiv 2501.12051).
    """
    return lambda parent, child: (
        unvisited if not child.visits else value(child) + c * math.sqrt(math.log(parent.visits) / child.visits)
    )


# ------------------------------------------------------------------------------------------------------------- backups


def running_mean(node: Node[object], value: float) -> None:
    """Q <- (N Q + value) / (N + 1), N <- N + 1."""
    node.value = (node.visits * node.value + value) / (node.visits + 1)
    node.visits += 1


def running_max(node: Node[object], value: float) -> None:
    """Q <- max(Q, value): of what is below a node the best counts; N <- N + 1."""
    node.value = max(node.value, value) if node.visits else value
    node.visits += 1


def below(node: Node[object]) -> float | None:
    """sum n_i Q_i / sum n_i over the children; None where none was visited."""
    visits = sum(child.visits for child in node.children)
    return sum(child.visits * child.value for child in node.children) / visits if visits else None


def mean_of_children(node: Node[object], value: float) -> None:
    """Q <- sum n_i Q_i / sum n_i over the children; a node without visited children takes the value; N <- N + 1."""
    discounted(1.0)(node, value)


def discounted(gamma: float) -> Backup:
    """Q <- gamma sum n_i Q_i / sum n_i over the children; a node without visited ones takes the value; N <- N + 1."""

    def backup(node: Node[Any], value: float) -> None:
        found = below(node)
        node.value = value if found is None else gamma * found
        node.visits += 1

    return backup


def back_up(node: Node[Any], value: float, backup: Backup) -> None:
    """Pass a value from a node up to the root."""
    for each in reversed(node.path()):
        backup(each, value)


# -------------------------------------------------------------------------------------------------------------- search


def choose(node: Node[State], rule: Rule) -> Node[State] | None:
    """The child that the rule likes best among those that are not closed; None where all are.

    Of equals the one with the larger value: of children that were valued when they were added, none of them visited,
    the best.
    """
    found = [child for child in node.children if not child.closed]
    return max(found, key=lambda child: (rule(node, child), child.value), default=None)


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
    done: Callable[[Node[State]], bool] = lambda root: False,
) -> None:
    """Grow trees: in each round, one visit to each that is not closed, and not done.

    A visit goes down by the rule to a node that was not expanded yet. A node that has a value already (and the root) is
    expanded, and the visit goes on to the child that the rule likes best. What is found there is backed up.
    """
    for _ in range(rounds):
        reached = [descend(root, rule) for root in roots if not root.closed and not done(root)]
        if not reached:
            return
        fresh = [node for node in reached if not node.over and (node.known or node.parent is None)]
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
    """From the root, always on to the child with the largest value, the first of equals, among those that have one."""
    path = [root]
    while known := [child for child in path[-1].children if child.known]:
        path.append(max(known, key=value))
    return path


def step_values(root: Node[State], right: Callable[[Node[State]], bool]) -> dict[Node[State], float]:
    """The values v that ReST-MCTS* infers for all nodes on the way to an end (arXiv 2406.03816, Eq. 1 and 2).

    v(root) = 0;  v_k = max(v_{k-1} + w_k, 0),  w_k = (1 - v_{k-1}) / (m_k + 1) (1 - 2 r_k)

    r_k = 1 if no right end lies below the node, else 0; m_k is the least number of further steps to a right end, for
    wrong nodes that of the nearest node above that has one. right: of a node that is over. A tree without a right end
    gives no values.
    """
    left = {node: float(0) for node in nodes(root) if node.over and right(node)}
    towards = {node for end in nodes(root) if end.over for node in end.path()}
    for node in reversed(list(nodes(root))):  # children before their parents
        ahead = [left[child] + 1 for child in node.children if child in left]
        if ahead:
            left[node] = min(ahead)
    if root not in left:
        return {}
    found, steps = {root: 0.0}, dict(left)
    for node in nodes(root):
        if node.parent is not None and node in towards:
            steps.setdefault(node, steps[node.parent])
            before, sign = found[node.parent], 1 if node in left else -1
            found[node] = max(before + sign * (1 - before) / (steps[node] + 1), 0.0)
    return found


def sibling_pairs(root: Node[State], gap: float, value: Value = value_of) -> Iterator[tuple[Node[State], Node[State]]]:
    """All pairs (better, worse) of siblings that have values and differ in them by more than the gap."""
    for node in nodes(root):
        for a, b in combinations([child for child in node.children if child.known], 2):
            if abs(value(a) - value(b)) > gap:
                yield (a, b) if value(a) > value(b) else (b, a)


def shared_path(a: Node[State], b: Node[State]) -> list[Node[State]]:
    """The nodes with which the paths to two nodes begin."""
    return [one for one, other in zip(a.path(), b.path(), strict=False) if one is other]
