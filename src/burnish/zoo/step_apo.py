"""CPL: Critical Plan Step Learning Boosts LLM Generalization in Reasoning Tasks (arXiv 2409.08642)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import torch.nn.functional as F
from torch import Tensor

from burnish import credit, draw, learn, rollout, select
from burnish.core.schedules import Schedule, after, before
from burnish.core.types import Group
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import pair_term
from burnish.method import Method, Option, Phase, Rollout, chain, roles, snapshot, trained
from burnish.methods import opt, register
from burnish.methods.tree_search import PATHS, SMALL, Depth, Explore, Rounds, Saves, Start, StepBy, Width, taught
from burnish.papers import Paper
from burnish.rollout.reply_tree import Branch, ReplyTrees, node_traces
from burnish.rollout.search_tree import Rule, Value, value_of
from burnish.rollout.stepped import Take
from burnish.rollout.valued import Valuation, Worth, no_value_yet

STEP_APO = Paper(
    "step-apo", "2409.08642", "CPL: Critical Plan Step Learning Boosts LLM Generalization in Reasoning Tasks"
)

LOW, HIGH = -1.0, 1.0  # the range of rewards and values: wrong and right


def step_apo_loss(logratio_w: Tensor, logratio_l: Tensor, value_w: Tensor, value_l: Tensor, beta: float) -> Tensor:
    """Step-APO (CPL, Wang et al., arXiv 2409.08642), per pair of next steps in one state.

        L = -log s( r_w - V_w - r_l + V_l ),   V the value of the state after the step

    With no reward between siblings, V_w - V_l is the difference of their advantages. Equal values give step-level DPO.
    """
    return -F.logsigmoid(beta * (logratio_w - logratio_l) - (value_w - value_l))


def root_puct(c: float, value: Value = value_of) -> Rule:
    """Q + c p sqrt(N / (1 + n)), p the prior: 1 + n stands inside the root (CPL, arXiv 2409.08642)."""
    return lambda parent, child: value(child) + c * child.prior * math.sqrt(parent.visits / (1 + child.visits))


def by_probability(children: Sequence[Branch]) -> None:
    """A proposal's prior is its probability under the policy, divided by the sum over the proposals in its state."""
    top = max(child.facts["logp"] for child in children)
    weights = [math.exp(child.facts["logp"] - top) for child in children]
    for child, weight in zip(children, weights, strict=True):
        child.prior = weight / sum(weights)


def every_node(trees: ReplyTrees) -> list[Group]:
    """One trace for each node that has a value, which is its score (`node_traces`)."""
    groups = [Group(root.state.task, node_traces(root)) for root in trees.roots]
    return [group for group in groups if group.traces]


def at_visit(worth: Worth) -> Valuation:
    """A node is valued when it is visited first (AlphaZero's order)."""

    def visit(trees: ReplyTrees, found: list[Branch]) -> list[tuple[Branch, float]]:
        return list(zip(found, worth.call(trees, found), strict=True))

    return Valuation(no_value_yet, visit, worth.reads)


def step_apo_term(beta: Schedule, value: str, *, on: Authors = "policy") -> Term:
    """Step-APO on pairs of next steps; the stream `value` has the value after a step on each of its tokens."""
    return pair_term(
        lambda w, r, beta: step_apo_loss(w.logratio, r.logratio, w[value], r[value], beta),
        beta=beta,
        marks=(value,),
        on=on,
    )


@register(
    STEP_APO,
    family="decoding",
    summary="Tree search, then preferences between sibling steps whose margin is the difference of their values.",
    when="Answers can be verified, replies go wrong at single steps, and pairs of whole replies say too little.",
    trial={**SMALL, "warmup": 0, "sync": 1},
)
def step_apo(
    task: draw.Source,
    *,
    warmup: Annotated[int, Option("Steps of SFT on right paths, before the preferences.", at_least=0)] = 10,
    rounds: Rounds = 32,
    width: Width = 4,
    c: Explore = 1.0,
    beta: opt.Beta = 0.1,
    sync: opt.Sync = 50,
    depth: Depth = 20,
    step_by: StepBy = "lines",
    prm: Start = None,
    prm_lr: opt.CriticLR = 1.0,
    saves: Saves = "policy",
) -> Method:
    """Critical plan step learning: step-level advantage preference optimisation on a search tree.

    select argmax Q + c pi sqrt(N / (1 + n)), Q(s, a) = V(s'), backup V = sum n_i V_i / sum n_i
    V of a new node = the value model's in [-1, 1]; of a finished reply 1 if it is right, -1 if not
    L = mean over pairs of siblings of -log s( beta lr(a_w|s) - V_w - beta lr(a_l|s) + V_l ) + mean over nodes of
        (value model - V)^2,  lr = log pi - log ref over the step's tokens

    pi in the rule is the probability of the step among those proposed in its state. The reference is the policy after
    the warm-up, then again after every `sync` steps: a round of the paper. In the warm-up the policy imitates right
    paths. Equal values give step-level DPO; such siblings are no pair. Departures: a step is a line of the reply, where
    the paper's first part of a reply is a plan and only plans are searched; all pairs of siblings count, where the
    paper adds one pair of solutions per problem; the constants are ours but for beta's role.
    """
    model = rollout.by_model("prm", LOW, HIGH)

    def searched(take: Take, writes: tuple[str, ...]) -> Rollout:
        return rollout.stepped(
            rounds,
            width,
            rule=root_puct(c),
            valuation=at_visit(rollout.ends_by(task, model, LOW)),
            priors=by_probability,
            take=take,
            writes=writes,
            steps=step_by,
            depth=depth,
        )

    first = Phase(
        name="warmup",
        times=before(warmup),
        draw=draw.prompts(task),
        rollout=searched(rollout.paths(task, rollout.tree_values), PATHS),
        credit=taught(),
        learn=learn.Learn(learn.imitate(on=learn.CLAIMED), learn.step_regression(), logp_temperature=1.0),
    )
    main = Phase(
        times=after(warmup),
        draw=draw.prompts(task),
        rollout=searched(every_node, ("tag:node", "score:reward")),
        select=select.sibling_pairs(0.0, alone=True),
        credit=chain(
            credit.ref(),
            credit.shared("reward", "worth"),
            credit.last_turn("reply", "node"),
            credit.last_turn("step", "node", "last"),
        ),
        learn=learn.Learn(step_apo_term(beta, "worth", on=learn.CLAIMED), learn.step_regression("worth", name="step")),
    )
    models = roles(prm=trained(prm or "base", outputs=1, lr=prm_lr), ref=snapshot("policy", sync, offset=warmup))
    return Method(models=models, phases=(first, main), product=saves, lr_share=0.1)
