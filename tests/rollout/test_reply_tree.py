"""Search trees over replies: values and rules by hand, how nodes get their values, and what is read off a tree."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable

import pytest
import torch
from conftest import SMALL, build_cast, scoring_model

from burnish.core.method import Method
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Sampling, Turn
from burnish.models.build import Models
from burnish.models.known_models import resolve
from burnish.rollout import search_tree as tree
from burnish.rollout import valued
from burnish.rollout.reply_tree import Branch, Partial, ReplyTrees
from burnish.rollout.search_tree import Node
from burnish.rollout.starts import Reply, Start, write_on
from burnish.rollout.stepped import answers, paths, stepped
from burnish.tasks.table import source
from burnish.zoo.meds3 import enough, half_of_children, with_siblings
from burnish.zoo.r_mcts import puct
from burnish.zoo.rest_mcts import eager_uct, good_end, looking_ahead, rest_mcts_search
from burnish.zoo.rlm_blueprint import at_birth, blended, growing_ucb
from burnish.zoo.step_apo import at_visit, by_probability, root_puct

TASK = source("add")


def chain_of(parent: Node[str], *names: str) -> list[Node[str]]:
    found = []
    for name in names:
        parent = parent.add(name)
        found.append(parent)
    return found


# --------------------------------------------------------------------------------------------------- ReST-MCTS*: values


def test_four_right_steps_are_worth_a_quarter_each() -> None:
    root: Node[str] = Node("")
    steps = chain_of(root, "a", "b", "c", "d")
    steps[-1].over = True
    found = tree.step_values(root, lambda node: True)
    assert [found[node] for node in steps] == pytest.approx([0.25, 0.5, 0.75, 1.0])


def test_a_wrong_step_takes_the_distance_of_the_step_before_it() -> None:
    """After b, worth .5 and two steps from the end, the wrong x: .5 - .5 / 3. After x, y: .333 - .667 / 3."""
    root: Node[str] = Node("")
    _, b, _, d = chain_of(root, "a", "b", "c", "d")
    x, y = chain_of(b, "x", "y")
    d.over = y.over = True
    found = tree.step_values(root, lambda node: node is d)
    assert found[x] == pytest.approx(1 / 3) and found[y] == pytest.approx(1 / 3 - 2 / 9)
    first = root.add("wrong from the start")
    first.over = True
    assert tree.step_values(root, lambda node: node is d)[first] == 0.0, "values do not fall below 0"


def test_the_nearest_right_end_counts_and_unfinished_branches_do_not() -> None:
    """a leads to right ends after one and after three more steps: m = 1, v = 1/2."""
    root: Node[str] = Node("")
    [a] = chain_of(root, "a")
    near, far = a.add("near"), chain_of(a, "b", "c", "far")[-1]
    near.over = far.over = True
    open_end = a.add("unfinished")
    found = tree.step_values(root, lambda node: True)
    assert found[a] == 0.5 and found[near] == 1.0 and found[far] == pytest.approx(1.0) and open_end not in found
    assert tree.step_values(root, lambda node: False) == {}, "a tree without a right end says nothing"


# --------------------------------------------------------------------------------------------------------------- rules


def test_rules_of_the_tree_methods_by_hand() -> None:
    """N = 5, n = 1, Q = 0.2, p = 0.5, c = 2."""
    root: Node[str] = Node("")
    a = root.add("a", prior=0.5)
    assert puct(2.0)(root, a) == pytest.approx(1.0), "before the first visit of the parent Q + c p"
    assert tree.uct(2.0, unvisited=5.0)(root, a) == 5.0
    root.visits, a.visits, a.value = 5, 1, 0.2
    assert puct(2.0)(root, a) == pytest.approx(0.2 + 2 * 0.5 * math.sqrt(5) / 2)
    assert root_puct(2.0)(root, a) == pytest.approx(0.2 + 2 * 0.5 * math.sqrt(5 / 2))
    assert tree.uct(0.4 * math.sqrt(2))(root, a) == pytest.approx(0.2 + 0.4 * math.sqrt(2 * math.log(5)))
    grown = 1.25 + math.log((5 + 19652) / 19652)
    assert growing_ucb(-1, 1)(root, a) == pytest.approx(0.6 + math.sqrt(4) / 2 * grown)
    root.visits = 1
    assert growing_ucb(-1, 1)(root, a) == pytest.approx(0.6), "one visit: by the value alone"


@pytest.mark.parametrize(
    ("value", "visits", "wanted"), [(0.2, 0, 1.2), (-0.3, 0, 0.7), (0.2, 3, 0.2 + 0.7 * math.sqrt(2 * math.log(7) / 3))]
)
def test_rest_mcts_takes_a_child_without_visits_for_one_better_than_its_value(
    value: float, visits: int, wanted: float
) -> None:
    """The released code's V + 1, and c 0.7: a good child with visits may well come before a new one."""
    root: Node[str] = Node("", visits=7)
    child = root.add("a")
    child.value, child.valued, child.visits = value, True, visits
    assert eager_uct(0.7)(root, child) == pytest.approx(wanted)
    good, new = Node("", value=0.9, visits=1), Node("", value=0.1)
    assert eager_uct(0.7)(root, good) > eager_uct(0.7)(root, new)


def test_backups_of_the_tree_methods_by_hand() -> None:
    """Children with n 3 and 1, Q 1 and 0: 3/4. Discounted by .96: .72. Half of it with an own value of .25: .5."""
    for backup, expected in (
        (tree.discounted(0.96), 0.72),
        (half_of_children, 0.5),
        (tree.mean_of_children, 0.75),
    ):
        root: Node[str] = Node("", value=0.25, visits=1)
        a, b = root.add("a"), root.add("b")
        a.visits, a.value, b.visits = 3, 1.0, 1
        backup(root, 9.0)
        assert root.value == pytest.approx(expected) and root.visits == 2
        backup(b, 0.4)
        assert b.value == 0.4, "a leaf takes the value"


def test_of_children_that_were_valued_at_birth_the_best_is_visited_first() -> None:
    root: Node[str] = Node("", expanded=True)
    for value in (0.1, 0.9, 0.5):
        child = root.add(str(value))
        child.value, child.valued = value, True
    assert tree.choose(root, tree.uct(1.0)) is root.children[1]
    assert tree.best_path(root)[-1] is root.children[1]
    done = good_end(0.9)
    assert not done(root)
    root.children[1].over = True
    assert done(root) and not good_end(0.95)(root)


def test_priors_are_the_probabilities_of_the_proposals() -> None:
    """Log-probs ln .3 and ln .1: 3/4 and 1/4."""
    root: Node[str] = Node("")
    for p in (0.3, 0.1):
        root.add(str(p)).facts["logp"] = math.log(p)
    by_probability(root.children)  # type: ignore[arg-type]
    assert [child.prior for child in root.children] == pytest.approx([0.75, 0.25])


def test_a_tree_has_enough_right_ends_or_nodes() -> None:
    root: Node[str] = Node("")
    for value in (1.0, 0.5, 1.0):
        child = root.add("", over=True)
        child.value, child.visits = value, 1
    assert enough(2, 60)(root) and not enough(3, 60)(root)  # type: ignore[arg-type]
    assert enough(3, 3)(root), "the root is one of four nodes"  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------------- trees over replies


@pytest.fixture(scope="module")
def cast(tmp_path_factory: pytest.TempPathFactory) -> tuple[Method, Models]:
    start = tmp_path_factory.mktemp("tiny") / "tiny"
    shutil.copytree(resolve("tiny"), start)
    built = rest_mcts_search(TASK, prm=str(scoring_model(start)))
    return built, build_cast(built, start)


def trees_of(cast: tuple[Method, Models], **how: float) -> ReplyTrees:
    built, models = cast
    step = Step(Clock(0, 1), models, SMALL, phase=built.phases[0].name, product=built.product)
    tasks = built.phases[0].draw.call(step)
    prompts = [Partial(task, (Turn(models["policy"].chat.prompt(task), "task"),)) for task in tasks]
    return ReplyTrees(prompts, step, until=("\n",), **how)  # type: ignore[arg-type]


def test_children_are_steps_and_equal_ones_are_one_child(cast: tuple[Method, Models]) -> None:
    trees = trees_of(cast)
    chat = trees.model.chat
    new = trees.expand(trees.roots, 12)
    assert len(new) < 12 * len(trees.roots), "some proposals are equal"
    for root in trees.roots:
        assert sum(child.prior for child in root.children) == pytest.approx(1.0)
        assert len({child.key for child in root.children}) == len(root.children)
        for child in root.children:
            text = chat.text(child.state.said)
            assert child.over or (text.endswith("\n") and text.count("\n") == 1)
            turn = child.state.turns[-1]
            assert turn.logp is not None and child.facts["logp"] == pytest.approx(float(turn.logp.sum()))
    assert all(trees.spent[root] >= sum(len(c.state.said) for c in root.children) for root in trees.roots)


def test_the_last_step_goes_to_the_end(cast: tuple[Method, Models]) -> None:
    trees = trees_of(cast, depth=1)
    assert all(child.over for child in trees.expand(trees.roots, 3))
    two = trees_of(cast, depth=2)
    first = [node for node in two.expand(two.roots, 3) if not node.over]
    assert first and all(child.over for child in two.expand(first, 2))


def test_a_path_of_greedy_steps_is_the_greedy_reply(cast: tuple[Method, Models]) -> None:
    trees = trees_of(cast)
    root = trees.roots[0]
    node = root
    while not node.over:
        [node] = trees.grow([node], settings=Sampling(0.0))
    start = Start(root.state.task, root.state.turns, 0, 7, settings=Sampling(0.0))
    whole = Reply(start)
    write_on([whole], trees.step)
    assert whole.said is not None and torch.equal(whole.said.tokens, node.state.said)
    assert len(node.path()) > 2


def test_one_round_and_a_depth_of_one_chooses_among_whole_replies(cast: tuple[Method, Models]) -> None:
    """Best of n: the answer is the reply among the proposals with the largest score of the model."""
    _, models = cast
    kept: list[ReplyTrees] = []

    def take(trees: ReplyTrees) -> list[Group]:
        kept.append(trees)
        return answers()(trees)

    step = trees_of(cast).step
    worth = valued.by_model("prm", -math.inf, math.inf)
    found = stepped(1, 5, rule=tree.uct(1.0), valuation=looking_ahead(worth, 0.0, 1, 1), take=take, depth=1).call(
        cast[0].phases[0].draw.call(step), step
    )
    for root, group in zip(kept[0].roots, found, strict=True):
        scores = kept[0].scores("prm", root.children)
        best = root.children[scores.index(max(scores))]
        assert torch.equal(group.traces[0].tokens, torch.cat([root.state.turns[0].tokens, best.state.said]))
        assert [turn.author for turn in group.traces[0].turns] == ["task", "policy"]


def constant(values: Callable[[Branch], float]) -> valued.Worth:
    return valued.Worth(lambda trees, nodes: [values(node) for node in nodes])


def test_a_look_ahead_is_mixed_in_and_leaves_no_nodes(cast: tuple[Method, Models]) -> None:
    """V 0.2 at depth 1, 0.6 below: (1 - 1/4) 0.2 + 1/4 0.6 = 0.3; without a look-ahead 0.2."""
    by_depth = constant(lambda node: 0.2 if len(node.state.turns) == 2 else 0.6)
    for alpha, expected in ((0.25, 0.3), (0.0, 0.2)):
        trees = trees_of(cast)
        valuation = looking_ahead(by_depth, alpha, 3, 1)
        new = trees.expand(trees.roots[:1], 4)
        valuation.born(trees, new)
        going = [node for node in new if not node.over]
        assert going and all(node.valued for node in new)
        for node, value in valuation.visit(trees, going):
            assert value == pytest.approx(expected) and not node.children


def test_when_values_are_given(cast: tuple[Method, Models]) -> None:
    """x1: all children at birth, once visited. MedS3: all siblings at the visit. Step-APO: the visited one alone."""
    worth = constant(lambda node: 0.5)
    for make, visits in ((at_birth, 1), (with_siblings, 0), (at_visit, 0)):
        trees = trees_of(cast)
        root = trees.roots[0]
        valuation = make(worth)
        new = trees.expand([root], 6)
        root.expanded = True
        valuation.born(trees, new)
        assert len(new) > 1 and all(child.visits == visits for child in new)
        found = [node for node, _ in valuation.visit(trees, new[:1])]
        assert found == {at_birth: [root], with_siblings: new, at_visit: new[:1]}[make]


def test_simulations_give_the_share_of_right_replies(cast: tuple[Method, Models]) -> None:
    """The greedy reply of tiny is right: at a temperature near 0 every simulation is; in [-1, 1] that is 1."""
    trees = trees_of(cast, temperature=1e-4)
    trees.limit = 64
    new = trees.expand(trees.roots, 2)
    assert valued.simulated(TASK, 3).call(trees, new) == [1.0] * len(new)
    warm = trees_of(cast, temperature=1.5)
    warm.limit = 64
    some = warm.expand(warm.roots, 4)
    low = valued.simulated(TASK, 4, -1.0).call(warm, some)
    assert set(low) <= {-1.0, -0.5, 0.0, 0.5, 1.0} and min(low) < 1
    assert blended(constant(lambda n: 0.0), constant(lambda n: 1.0), 0.25).call(warm, some) == [0.25] * len(some)


def test_paths_share_turns_and_carry_labels(cast: tuple[Method, Models]) -> None:
    step = trees_of(cast).step
    step.settings = type(SMALL)(prompts=6, max_new_tokens=64, token_budget=4096)
    found = stepped(
        8,
        3,
        rule=tree.uct(1.0),
        valuation=at_visit(valued.simulated(TASK, 1)),
        take=paths(TASK),
    ).call(cast[0].phases[0].draw.call(step), step)
    right = [trace for group in found for trace in group.traces if "right" in trace.tags]
    assert right and all(trace.scores["correct"] == ("right" in trace.tags) for g in found for trace in g.traces)
    for trace in right:
        values = trace.turn_scores["value"]
        assert math.isnan(values[0]) and values[1:] == sorted(values[1:]) and values[-1] == pytest.approx(1.0)
    shared = [(a, b) for g in found for a in g.traces for b in g.traces if a is not b and a.turns[1] is b.turns[1]]
    assert shared, "two paths with one first step have one turn for it"
