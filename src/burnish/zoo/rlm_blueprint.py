"""Reasoning Language Models: A Blueprint (arXiv 2501.11223)."""

from __future__ import annotations

import math
from typing import Annotated, Any

from burnish import draw, learn, rollout
from burnish.method import Method, Option, Rollout
from burnish.methods import opt, register
from burnish.methods.tree_search import (
    PATHS,
    SMALL,
    Depth,
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
from burnish.rollout.search_tree import Node, Rule, Value, best_path, discounted, value_of
from burnish.rollout.stepped import Take, best_end
from burnish.rollout.valued import Valuation, Worth, assign_values

RLM_BLUEPRINT = Paper("rlm-blueprint", "2501.11223", "Reasoning Language Models: A Blueprint")

Gamma = Annotated[float, Option("Discount per step.", above=0, at_most=1)]


def growing_ucb(low: float, high: float, value: Value = value_of, *, c1: float = 1.25, c2: float = 19652.0) -> Rule:
    """(Q - low) / (high - low) + sqrt(N - 1) / (1 + n) [c1 + ln((N + c2) / c2)]: MuZero's rule without its prior (x1,
    arXiv 2501.11223). low and high are the range of rewards: the authors' code never moves its minimum and maximum.
    """

    def rule(parent: Node[Any], child: Node[Any]) -> float:
        share = math.sqrt(max(0, parent.visits - 1)) / (1 + child.visits)
        return (value(child) - low) / (high - low) + share * (c1 + math.log((parent.visits + c2) / c2))

    return rule


def end_of_best_path(root: Branch) -> Branch:
    """The last node of the path on which each step has the largest value of its siblings."""
    return best_path(root)[-1]


def blended(first: Worth, second: Worth, alpha: float) -> Worth:
    """(1 - alpha) first + alpha second; at 0 and 1 the other one is not asked."""
    if alpha in (0, 1):
        return first if alpha == 0 else second

    def call(trees: ReplyTrees, nodes: list[Branch]) -> list[float]:
        both = zip(first.call(trees, nodes), second.call(trees, nodes), strict=True)
        return [(1 - alpha) * a + alpha * b for a, b in both]

    return Worth(call, first.reads | second.reads)


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


ANSWERS = {"path": end_of_best_path, "end": best_end}
LOW, HIGH = -1.0, 1.0  # the range of rewards and values: wrong and right


def _x1(
    rounds: int, width: int, gamma: float, worth: Worth, take: Take, how: dict[str, Any], writes: tuple[str, ...]
) -> Rollout:
    """The search of x1: all children are valued when they are added; Q of a node is the discounted mean below it."""
    return rollout.stepped(
        rounds,
        width,
        rule=growing_ucb(LOW, HIGH),
        backup=discounted(gamma),
        valuation=at_birth(worth),
        take=take,
        writes=writes,
        **how,
    )


@register(
    RLM_BLUEPRINT,
    family="decoding",
    summary="Tree search with a model of step values (x1), which learns the tree's values; SFT on right paths.",
    when="As rest_mcts, where values are discounted returns in [-1, 1] and simulations may back the model up.",
    trial={**SMALL, "simulations": 1},
)
def rlm_blueprint(
    task: draw.Source,
    *,
    rounds: Rounds = 16,
    width: Width = 2,
    gamma: Gamma = 0.96,
    simulations: Annotated[int, Option("Replies that are sampled from each new node.", at_least=0)] = 0,
    alpha: Annotated[float, Option("The simulations' share of a value.", at_least=0, at_most=1)] = 0.5,
    depth: Depth = 20,
    step_by: StepBy = "lines",
    sft: opt.ImitationCoef = 1.0,
    prm: Start = None,
    prm_lr: opt.CriticLR = 1.0,
    saves: Saves = "policy",
) -> Method:
    """x1, the example of the blueprint of reasoning models: MCTS with a Q model; both models learn from the trees.

    select argmax (Q + 1)/2 + sqrt(N - 1)/(1 + n) [1.25 + ln((N + 19652)/19652)]
    Q of a new node = (1 - alpha) model + alpha mean of simulations; of a finished reply 1 if it is right, -1 if not
    backup: Q = gamma sum n_i Q_i / sum n_i
    L = mean over steps of finished paths of (model(prefix) - Q)^2 + sft x mean over tokens of right paths of -log pi

    A new node counts as visited once. Without simulations alpha is not used. Departures: the model's head is linear and
    clipped to [-1, 1] in the search, where the authors' has a bounded range; trees and updates alternate step by step;
    where the search meets a finished reply it goes on elsewhere, where the authors' ends; the policy learns by SFT
    alone, the first of the paper's choices. A step that several paths share counts once. Missing of the blueprint that
    x1 is an example of: structures other than trees (chains, graphs, nested ones), beam search and ensembles, operators
    that refine, aggregate or prune steps, and DPO or PPO of the policy on the trees.
    """
    model = rollout.by_model("prm", LOW, HIGH)
    inner = blended(model, rollout.simulated(task, simulations, LOW), alpha) if simulations else model
    how = {"steps": step_by, "depth": depth}
    take = rollout.paths(task, rollout.tree_values)
    searched = _x1(rounds, width, gamma, rollout.ends_by(task, inner, LOW), take, how, PATHS)
    return self_taught(task, searched, learn.step_regression(), sft=sft, prm=prm, prm_lr=prm_lr, saves=saves)


@register(
    RLM_BLUEPRINT,
    family="decoding",
    summary="Answer by x1's tree search with a model of step values: no training.",
    when="A model of `rlm_blueprint` is at hand, and an answer may cost as many tokens as a search.",
    example="burnish train rlm_blueprint_search --prm runs/DIR/model --steps 1",
    trial={**SMALL, "prm": "tiny"},
)
def rlm_blueprint_search(
    task: draw.Source,
    *,
    prm: Scorer,
    rounds: Rounds = 16,
    width: Width = 2,
    gamma: Gamma = 0.96,
    answer: Annotated[
        str,
        Option(
            "How the answer is read off. path: each step has the largest value of its siblings; end: the finished "
            "reply with the largest value.",
            choices=tuple(ANSWERS),
        ),
    ] = "path",
    depth: Depth = 20,
    step_by: StepBy = "lines",
) -> Method:
    """x1's search, that of `rlm_blueprint`, with the model's value alone, of finished replies too.

    select argmax (Q + 1)/2 + sqrt(N - 1)/(1 + n) [1.25 + ln((N + 19652)/19652)];  Q = gamma sum n_i Q_i / sum n_i

    answer = path: the path on which each step has the largest Q of its siblings, as in the paper; where it is not
    finished, the policy goes on from its end. With many proposals a right step is diluted by the wrong ones below it,
    and its untried siblings look better: answer = end takes the best finished reply instead. The verifier only measures
    the answer.
    """
    how = {"steps": step_by, "depth": depth}
    take = rollout.answers(ANSWERS[answer])
    worth = rollout.by_model("prm", LOW, HIGH)
    return answered(task, _x1(rounds, width, gamma, worth, take, how, ("tag:path",)), prm)
