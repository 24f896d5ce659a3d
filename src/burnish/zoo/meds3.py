"""MedS3: Towards Medical Small Language Models with Self-Evolved Slow Thinking (arXiv 2501.12051)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from burnish import draw, learn, rollout, score, select
from burnish.method import Method, Option, chain, frozen, method, roles
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
    self_taught,
)
from burnish.papers import Paper
from burnish.rollout.reply_tree import Branch, ReplyTrees
from burnish.rollout.search_tree import Node, below, nodes
from burnish.rollout.stepped import Done
from burnish.rollout.valued import Valuation, Worth, no_value_yet
from burnish.score.step_rewards import AGGREGATES

MEDS3 = Paper("meds3", "2501.12051", "MedS3: Towards Medical Small Language Models with Self-Evolved Slow Thinking")


def half_of_children(node: Node[object], value: float) -> None:
    """Q <- (Q + sum n_i Q_i / sum n_i) / 2; a node without visited children takes the value; N <- N + 1 (MedS3)."""
    found = below(node)
    node.value = value if found is None else (node.value + found) / 2
    node.visits += 1


def enough(right: int, most: int) -> Done:
    """A tree is done when it has so many ends with value 1, or so many nodes."""

    def done(root: Branch) -> bool:
        found = list(nodes(root))
        return len(found) > most or sum(node.over and node.known and node.value >= 1 for node in found) >= right

    return done


def with_siblings(worth: Worth) -> Valuation:
    """All children of a node are valued when it is expanded, and each value is backed up (MedS3)."""

    def visit(trees: ReplyTrees, found: list[Branch]) -> list[tuple[Branch, float]]:
        beside = [node.parent.children if node.parent is not None else [node] for node in found]
        new = list(dict.fromkeys(node for some in beside for node in some if not node.known))
        return list(zip(new, worth.call(trees, new), strict=True)) if new else []

    return Valuation(no_value_yet, visit, worth.reads)


@register(
    MEDS3,
    family="decoding",
    summary="Self-evolution by tree search: simulations give each step a soft label, right paths teach the policy.",
    when="As rest_mcts, where the process model is to choose among whole answers (`meds3_answer`).",
    trial={**SMALL, "simulations": 2},
)
def meds3(
    task: draw.Source,
    *,
    simulations: Annotated[int, Option("Replies that are sampled from each node.", at_least=1)] = 20,
    rounds: Rounds = 20,
    width: Width = 3,
    c: Explore = 2.0,
    right: Annotated[int, Option("A tree is done when it has so many right replies.", at_least=1)] = 4,
    nodes: Annotated[int, Option("Nodes of a tree, at most.", at_least=2)] = 60,
    depth: Depth = 6,
    step_by: StepBy = "lines",
    sft: opt.ImitationCoef = 1.0,
    prm: Start = None,
    prm_lr: opt.CriticLR = 1.0,
    saves: Saves = "policy",
) -> Method:
    """MedS3: a tree of simulated steps; SFT on right paths, a process model on soft labels.

    select argmax V + c sqrt(ln N / n), 5 for a node without visits
    V of a new node = share of right replies among its simulations;  backup: V <- (V + sum n_i V_i / sum n_i) / 2
    L = mean over steps of -V log s(h) - (1 - V) log s(-h) + sft x mean over tokens of right paths of -log pi

    h is the process model's head after the step; V the value that the search left. All children of an expanded node are
    simulated and backed up. A tree is done at `right` right replies or `nodes` nodes. Departures: trees and both
    updates alternate step by step; the refine action and the look-back penalty are left out; a step ends where
    `step_by` says, and a reply where the policy ends it, not by a Finish action; a step that several paths share counts
    once.
    """
    searched = rollout.stepped(
        rounds,
        width,
        rule=rollout.uct(c, unvisited=5.0),
        backup=half_of_children,
        valuation=with_siblings(rollout.simulated(task, simulations)),
        done=enough(right, nodes),
        take=rollout.paths(task, rollout.tree_values),
        steps=step_by,
        depth=depth,
        writes=PATHS,
    )
    return self_taught(task, searched, learn.step_chance(), sft=sft, prm=prm, prm_lr=prm_lr, saves=saves)


@register(
    MEDS3,
    family="decoding",
    summary="Sample n replies; the one whose weakest step after the first is the best answers: no training.",
    when="A process model of `meds3` is at hand, and a wrong step spoils a reply.",
    example="burnish train meds3_answer --prm runs/DIR/model --steps 1",
    trial={"prm": "tiny", "n": 2},
)
def meds3_answer(
    task: draw.Source,
    *,
    prm: Scorer,
    n: opt.Replies = 16,
    aggregate: Annotated[str, Option("What is made of the scores of steps.", choices=tuple(AGGREGATES))] = "min",
    step_by: StepBy = "lines",
) -> Method:
    """Best of n by a process model: argmax_i min over the steps k > 1 of reply i of s(h_k).

    The first step is left out, unless it is the only one. Scores .9, .7, .8 make .7. n = 1 is plain sampling.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=chain(
            score.aggregated_steps(
                "prm", score.segmentation(step_by), lambda steps: after_the_first(steps, aggregate), name="prm"
            ),
            score.scoring(task, None),
        ),
        select=chain(select.keep_best(1, "prm"), select.keep_best(1)),  # the answer; its own score is noted
        learn=learn.Learn(),
        models=roles(prm=frozen(prm, outputs=1)),
    )


def after_the_first(steps: Sequence[float], aggregate: str) -> float:
    """The aggregate of the scores of all steps but the first; of the first where it is the only one."""
    return AGGREGATES[aggregate](steps[1:] or steps)
