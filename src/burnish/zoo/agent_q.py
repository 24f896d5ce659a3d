"""Agent Q: Advanced Reasoning and Learning for Autonomous AI Agents (arXiv 2408.07199)."""

from __future__ import annotations

import math
from typing import Annotated

from burnish import credit, draw, learn, rollout, select
from burnish.core.step import Step
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.rollout.search_tree import Rule, Value, value_of
from burnish.rollout.searched import Branch, Opinion
from burnish.score.words import told, word_logps

AGENT_Q = Paper("agent-q", "2408.07199", "Agent Q: Advanced Reasoning and Learning for Autonomous AI Agents")

Rounds = Annotated[int, Option("Visits to each tree.", at_least=1)]
Width = Annotated[int, Option("Replies that are proposed in each state.", at_least=2)]
Explore = Annotated[float, Option("How strongly the search prefers what it has visited less.", at_least=0)]
_TREE = {"task": "guess", "rounds": 4, "width": 3}


def ucb_after_one(c: float, value: Value = value_of) -> Rule:
    """Q + c sqrt(ln N / (1 + n)): no child is infinitely attractive, so a prior opinion in Q orders new ones (Agent Q,
    arXiv 2408.07199).
    """
    return lambda parent, child: value(child) + c * math.sqrt(math.log(max(1, parent.visits)) / (1 + child.visits))


def mixed_value(alpha: float) -> Value:
    """Q = alpha Q_tree + (1 - alpha) Q_critic; a node that no critic judged has Q_tree alone."""
    return lambda node: (
        alpha * node.value + (1 - alpha) * node.facts["critic"] if "critic" in node.facts else node.value
    )


def ranked_by(critic: str) -> Opinion:
    """A model's order of the replies that were proposed in one state: 1 for the best, 0 for the worst, evenly between.

    The critic reads the episode and one proposal at a time; the order is that of log p(yes) - log p(no) to the
    question whether it is a good next step.
    """

    def opinion(leaves: list[Branch], step: Step) -> None:
        chat = step.models[critic].chat
        asked = [(leaf, child) for leaf in leaves for child in leaf.children]
        questions = [
            f"{told(child.state.turns[: len(leaf.state.turns) + 1], chat)}\n"
            "Is the agent's last step a good one? Answer yes or no."
            for leaf, child in asked
        ]
        odds = {
            id(child): yes - no
            for (_, child), (yes, no) in zip(asked, word_logps(questions, ("yes", "no"), critic, step), strict=True)
        }
        for leaf in leaves:
            ordered = sorted(leaf.children, key=lambda child: -odds[id(child)])
            for rank, child in enumerate(ordered):
                child.facts["critic"] = 1 - rank / (len(ordered) - 1) if len(ordered) > 1 else 1.0

    return opinion


@register(
    AGENT_Q,
    family="agents",
    summary="Tree search with a critic's opinion; step-level DPO on siblings whose values differ.",
    when="The environment can return to a state, and the reward comes only at the end.",
    example="burnish train agent_q --task guess",
    trial={**_TREE, "theta": 0.0},
)
def agent_q(
    task: draw.Source,
    *,
    rounds: Rounds = 16,
    width: Width = 5,
    c: Explore = 1.0,
    alpha: Annotated[float, Option("The tree's share of a value, beside the critic's.", at_least=0, at_most=1)] = 0.5,
    theta: Annotated[float, Option("The least distance of the values of a pair.", at_least=0)] = 0.2,
    beta: opt.Beta = 0.1,
) -> Method:
    """Agent Q: guided tree search, then DPO on the steps.

    Q = alpha Q_tree + (1 - alpha) Q_critic;  select argmax Q + c sqrt(ln N(h) / (1 + N(h, a)))
    Q_tree <- (N Q_tree + R) / (N + 1) along the path, R the episode's reward
    pairs: all visited siblings with |Q_i - Q_j| > theta;  L = -log s( beta [lr(a_w|h) - lr(a_l|h)] ),  mean over pairs
    lr = sum over the step's tokens of log pi - log pi_b, pi_b the log-probs stored when the step was sampled

    Q_critic is the rank of a step among those proposed in its state, 1 to 0, by the starting model. theta above every
    distance gives no pairs; alpha = 1 has no critic. The paper prints none of alpha, theta, c, the number of proposals
    or the depth: 0.5, 0.2, 1 and 5 are ours. Departures: the critic is asked about each step alone, and the odds of
    yes order them, where the paper's lists them in order; a plan or thought is part of the reply; a finished branch is
    not visited again; siblings that were never visited make no pairs.
    """
    value = mixed_value(alpha)
    critic = {"critic": frozen("policy")} if alpha < 1 else {}
    return method(
        draw=draw.prompts(task, "env"),
        rollout=rollout.searched(
            rounds,
            width,
            rule=ucb_after_one(c, value),
            take=rollout.replies_with(value),
            opinion=ranked_by("critic") if critic else None,
            reads=[f"model:{name}.logp" for name in critic],
        ),
        select=select.sibling_pairs(theta),
        credit=chain(credit.behaviour(), credit.last_turn("reply", "node")),
        learn=learn.Learn(learn.dpo(beta, anchor="old", on=learn.CLAIMED)),
        models=roles(**critic),
        lr_share=0.1,
    )
