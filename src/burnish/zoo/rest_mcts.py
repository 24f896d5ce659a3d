"""ReST-MCTS*: LLM Self-Training via Process Reward Guided Tree Search (arXiv 2406.03816)."""

from __future__ import annotations

import math
from typing import Annotated

from burnish import draw, learn, rollout
from burnish.method import Method, Option
from burnish.methods import opt, register
from burnish.methods.tree_search import (
    PATHS,
    SMALL,
    Depth,
    Explore,
    Rounds,
    Saves,
    Scorer,
    Start,
    StepBy,
    Width,
    answered,
    self_taught,
)
from burnish.papers import Paper
from burnish.rollout.reply_tree import Branch, ReplyTrees
from burnish.rollout.search_tree import Rule, nodes, value_of
from burnish.rollout.stepped import Done
from burnish.rollout.valued import Valuation, Worth, assign_values

REST_MCTS = Paper("rest-mcts", "2406.03816", "ReST-MCTS*: LLM Self-Training via Process Reward Guided Tree Search")


def good_end(gate: float) -> Done:
    """A tree is done when one of its ends has a value of at least the gate."""
    return lambda root: any(node.over and node.known and node.value >= gate for node in nodes(root))


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


def eager_uct(c: float) -> Rule:
    """V + c sqrt(2 ln N / n), and V + 1 for a child without visits: one far better than it is visited once more."""
    known = rollout.uct(c * math.sqrt(2))
    return lambda parent, child: known(parent, child) if child.visits else value_of(child) + 1.0


@register(
    REST_MCTS,
    family="decoding",
    summary="Self-training by tree search: a process model learns inferred step values, the policy right paths.",
    when="Answers can be verified, no steps are labelled, and you want both a better policy and a process model.",
    trial={**SMALL},
)
def rest_mcts(
    task: draw.Source,
    *,
    rounds: Rounds = 16,
    width: Width = 3,
    c: Explore = 0.7,
    alpha: Annotated[float, Option("The look-ahead's share of a value.", at_least=0, at_most=1)] = 0.5,
    ahead: Annotated[int, Option("Steps of the look-ahead.", at_least=1)] = 3,
    gate: Annotated[float, Option("A tree is done when one of its ends has this value.")] = 0.9,
    depth: Depth = 20,
    step_by: StepBy = "lines",
    sft: opt.ImitationCoef = 1.0,
    prm: Start = None,
    prm_lr: opt.CriticLR = 1.0,
    saves: Saves = "policy",
) -> Method:
    """ReST-MCTS*: tree search guided by a process model, which learns from the trees with the policy.

    select argmax V + c sqrt(2 ln N / n), V + 1 for a node without visits;  V of a new node = the process model's, in
    [0, 1]
    visit: V <- (1 - alpha) V + alpha max of V over a greedy look-ahead;  backup: V = sum n_i V_i / sum n_i
    v_0 = 0;  v_k = max(v_{k-1} + w_k, 0),  w_k = (1 - v_{k-1}) / (m_k + 1) (1 - 2 r_k)
    L = mean over steps of finished paths of (prm(prefix) - v)^2 + sft x mean over tokens of right paths of -log pi

    m_k is the least number of further steps from step k to a right end, r_k = 1 if there is none below it; a wrong step
    takes the m of the nearest step before it that has one. K right steps have v_k = k/K. Trees without a right end give
    no values. alpha = 0 has no look-ahead; a gate above 1 visits a tree `rounds` times. Departures: trees and both
    updates alternate step by step, where the paper has long rounds and starts from a process model of labelled data;
    a step that several paths share counts once; a finished reply is not visited again.
    """
    searched = rollout.stepped(
        rounds,
        width,
        rule=eager_uct(c),
        valuation=looking_ahead(rollout.by_model("prm", 0.0, 1.0), alpha, ahead, 1),
        done=good_end(gate),
        take=rollout.paths(task),
        steps=step_by,
        depth=depth,
        writes=PATHS,
    )
    return self_taught(task, searched, learn.step_regression(), sft=sft, prm=prm, prm_lr=prm_lr, saves=saves)


@register(
    REST_MCTS,
    family="decoding",
    summary="Answer by a tree search that a process model guides: no training.",
    when="A process model is at hand, and an answer may cost as many tokens as a search.",
    example="burnish train rest_mcts_search --prm runs/DIR/model --steps 1",
    trial={**SMALL, "prm": "tiny"},
)
def rest_mcts_search(
    task: draw.Source,
    *,
    prm: Scorer,
    rounds: Rounds = 16,
    width: Width = 3,
    c: Explore = 0.7,
    alpha: Annotated[float, Option("The look-ahead's share of a value.", at_least=0, at_most=1)] = 0.5,
    ahead: Annotated[int, Option("Steps of the look-ahead.", at_least=1)] = 3,
    gate: Annotated[float, Option("The search ends at a finished reply of this value.")] = 0.9,
    depth: Depth = 20,
    step_by: StepBy = "lines",
) -> Method:
    """MCTS*: the search of `rest_mcts`. The answer is the finished reply with the largest value.

    select argmax V + c sqrt(2 ln N / n), V + 1 for a node without visits;  V of a new node = the process model's, in
    [0, 1]
    visit: V <- (1 - alpha) V + alpha max of V over a greedy look-ahead;  backup: V = sum n_i V_i / sum n_i

    Where none is finished, the policy goes on from the best path. The process model alone decides: the verifier only
    measures the answer. With one round a tree has `width` first steps, and the policy goes on from the best.
    """
    found = rollout.stepped(
        rounds,
        width,
        rule=eager_uct(c),
        valuation=looking_ahead(rollout.by_model("prm", 0.0, 1.0), alpha, ahead, 1),
        done=good_end(gate),
        take=rollout.answers(),
        steps=step_by,
        depth=depth,
        writes=("tag:path",),
    )
    return answered(task, found, prm)
