"""The search tree: rules, backups and extractors with numbers derived by hand, and a search that finds a known path."""

from __future__ import annotations

import math

import pytest

from burnish.rollout import search_tree as tree
from burnish.rollout.search_tree import Node
from burnish.zoo.agent_q import ucb_after_one
from burnish.zoo.armap import log_puct
from burnish.zoo.r_mcts import puct


def small() -> tuple[Node[str], Node[str], Node[str], Node[str]]:
    """root -> a, b; a -> c."""
    root: Node[str] = Node("root")
    a, b = root.add("a"), root.add("b", prior=0.5)
    return root, a, b, a.add("c")


def test_rules_by_hand() -> None:
    """N = 4, n = 2, Q = 0.5, c = 2: ln 4 = 1.386."""
    root, a, b, _ = small()
    root.visits, a.visits, a.value = 4, 2, 0.5
    ln = math.log(4)
    assert tree.uct(2.0)(root, a) == pytest.approx(0.5 + 2 * math.sqrt(ln / 2))
    assert tree.uct(2.0)(root, b) == math.inf
    assert ucb_after_one(2.0)(root, a) == pytest.approx(0.5 + 2 * math.sqrt(ln / 3))
    assert ucb_after_one(2.0)(root, b) == pytest.approx(2 * math.sqrt(ln))
    assert log_puct(2.0)(root, a) == pytest.approx(0.5 + 2 * math.sqrt(ln) / 3)
    assert log_puct(2.0)(root, b) == pytest.approx(2 * 0.5 * math.sqrt(ln))
    assert puct(2.0)(root, b) == pytest.approx(2 * 0.5 * 2)
    assert tree.uct(2.0, lambda node: 7.0)(root, a) == pytest.approx(7 + 2 * math.sqrt(ln / 2))


def test_backups_by_hand() -> None:
    """1, 0 and 0 through a: mean 1/3, maximum 1. Children with n 3 and 1, Q 1 and 0: 3/4."""
    root, a, _, c = small()
    for value in (1.0, 0.0, 0.0):
        tree.back_up(c, value, tree.running_mean)
    assert [node.visits for node in (root, a, c)] == [3, 3, 3] and root.value == pytest.approx(1 / 3)
    root, a, _, c = small()
    for value in (-1.0, 1.0, 0.0):
        tree.back_up(c, value, tree.running_max)
    assert c.value == 1.0 and root.value == 1.0
    root, a, b, _ = small()
    a.visits, a.value, b.visits, b.value = 3, 1.0, 1, 0.0
    tree.mean_of_children(root, 9.0)
    assert root.value == 0.75 and root.visits == 1


def test_siblings_paths_and_ends() -> None:
    root, a, b, c = small()
    root.visits = a.visits = b.visits = c.visits = 1
    a.value, b.value, c.value, c.over = 0.2, 0.9, 0.2, True
    assert list(tree.sibling_pairs(root, 0.5)) == [(b, a)]
    assert list(tree.sibling_pairs(root, 0.7)) == []  # 0.9 - 0.2 is not more than 0.7
    b.visits = 0
    assert list(tree.sibling_pairs(root, 0.0)) == []
    assert tree.best_path(root) == [root, a, c] and tree.ends(root) == [c]
    assert tree.shared_path(c, b) == [root] and tree.shared_path(c, a) == [root, a]
    assert [node.state for node in tree.nodes(root)] == ["root", "a", "c", "b"]


def bits(rounds: int, rule: tree.Rule) -> Node[str]:
    """A search over strings of three bits; 1 for "101", else 0."""
    root: Node[str] = Node("")

    def propose(leaves: list[Node[str]]) -> None:
        for leaf in leaves:
            for bit in "01":
                leaf.add(leaf.state + bit, over=len(leaf.state) == 2)

    def evaluate(leaves: list[Node[str]]) -> list[tuple[Node[str], float]]:
        return [(leaf, float("101".startswith(leaf.state))) for leaf in leaves]

    tree.search([root], rounds, propose=propose, evaluate=evaluate, rule=rule)
    return root


def test_a_search_finds_the_path_and_closes_what_is_done() -> None:
    root = bits(8, tree.uct(0.5))
    assert tree.best_path(root)[-1].state == "101"
    assert root.visits == 8 and root.visits == sum(child.visits for child in root.children)
    whole = bits(50, tree.uct(0.5))
    assert whole.closed and len(tree.ends(whole)) == 8
    assert whole.visits == 14, "two visits to inner nodes of depth 1, four of depth 2, and one to each end"


def test_without_exploration_the_first_branch_that_pays_is_followed() -> None:
    """Visits: 0 (worth 0), 1 (1), 10 (1), 11 (0), 100 (0): new siblings first, then the larger mean."""
    root = bits(5, tree.uct(0.0))
    assert [node.state for node in tree.nodes(root) if node.visits] == ["", "0", "1", "10", "100", "11"]
    assert root.children[1].value == pytest.approx(2 / 4) and root.value == pytest.approx(2 / 5)
