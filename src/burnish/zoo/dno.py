"""Direct Nash Optimization: Teaching Language Models to Self-Improve with General Preferences (arXiv 2404.03715)."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import Part, chain, supplies
from burnish.core.roles import snapshot
from burnish.core.schedules import Schedule
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.credit import by_bradley_terry, by_comparison
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import pair_term
from burnish.method import Method, Option, Phase, Sampling, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

DNO = Paper(
    "dno", "2404.03715", "Direct Nash Optimization: Teaching Language Models to Self-Improve with General Preferences"
)

Eta = Annotated[float, Option("Step size of the game.", above=0)]
ROUND = {"n": 4, "sync": 1}


def soft_logistic(margin: Tensor, preference: Tensor) -> Tensor:
    """Cross-entropy between a preference p and sigmoid(margin), per pair: -p log s(m) - (1 - p) log s(-m).

    p = 1 is DPO's loss; p = s(r_1 - r_2) with margin eta (lr_1 - lr_2) is DNO's (arXiv 2404.03715, Algorithm 1).
    """
    return -preference * F.logsigmoid(margin) - (1 - preference) * F.logsigmoid(-margin)


@supplies("pairs")
def large_margins(floor: float, margin: float, own_margin: float, *, own: str, score: str = "reward") -> Part:
    """DNO's pairs: every reply that scores at least `floor` over every reply that scores at least a margin less.

    The margin is `own_margin` where the preferred reply is by the author `own` (the policy), else `margin`: a pair
    that the policy wins against its teacher needs less.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            scores = [trace.scores[score] for trace in group.traces]
            needs = [own_margin if bool(trace.by(own).any()) else margin for trace in group.traces]
            group.pairs = [
                (a, b)
                for a in range(len(scores))
                for b in range(len(scores))
                if scores[a] >= floor and scores[a] - scores[b] >= needs[a] and scores[a] > scores[b]
            ]
        kept = [group for group in groups if group.pairs]
        step.notes.add("dropped/no_preference", len(groups) - len(kept), len(groups))
        return kept

    return Part(name="large_margins", call=call, reads=frozenset({f"score:{score}"}), writes=frozenset({"pairs"}))


def soft_preference(eta: Schedule, *, anchor: str = "past", on: Authors = "policy") -> Term:
    """DNO: cross-entropy between s(P_w - P_l), win rates in stream "wins", and s(eta (lr_w - lr_l))."""
    return pair_term(
        lambda w, r, eta: soft_logistic(
            eta * (w.logratio - r.logratio), torch.sigmoid(w["wins"] - r["wins"]).to(w.logratio)
        ),
        beta=eta,
        anchor=anchor,
        marks=("wins",),
        on=on,
    )


@register(
    DNO,
    family="preference",
    summary="Rounds of DPO on large-margin pairs of the policy's and a teacher's replies, old pairs replayed.",
    when="Demonstrations of a stronger model, and a scorer that compares them with the policy's own replies.",
    trial={"n": 4, "sync": 1, "floor": 0.0, "margin": 0.0, "own_margin": 0.0},
)
def dno(
    task: draw.Source,
    *,
    n: opt.Replies = 5,
    beta: opt.Beta = 0.1,
    floor: Annotated[float, Option("Least score of a preferred reply.")] = 5 / 6,
    margin: Annotated[float, Option("Least distance of a pair's scores.", at_least=0)] = 2 / 6,
    own_margin: Annotated[float, Option("The same where the policy's own reply is preferred.", at_least=0)] = 1 / 6,
    replay: Annotated[float, Option("Old pairs replayed, as a share of the prompts.", at_least=0, at_most=1)] = 0.3,
    sync: opt.Sync = 1 / 3,
    reward_model: opt.RewardModel = None,
) -> Method:
    """DNO-Prct: the practical version of direct Nash optimisation.

    y_1..y_n ~ pi_t and the demonstration y*;  pairs: every reply that scores at least `floor` over every one that
    scores at least `margin` less (`own_margin` where the first is the policy's)
    L = -log s( beta [lr_w - lr_l] ),  lr = log pi(y|x) - log pi_t(y|x),  mean over pairs

    The paper scores on a scale of 6 points (5, 2 and 1 are its thresholds); here scores are in [0, 1]. Its replay gives
    each older round half as much; here old pairs are drawn evenly from the last 512 prompts. `dno_soft` is its theory.
    """
    memory = select.Store("pairs", 512)
    own = rollout.sample(n, who="past")
    rule = large_margins(floor, margin, own_margin, own="past")
    anchor, authors = credit.ref("past", logp_temperature=1.0), ("past", "demo")
    fresh = Phase(
        draw=draw.demos(task),
        rollout=rollout.join(own, rollout.given("demo")),
        score=score.scoring(task, reward_model, author="past"),
        select=chain(rule, select.remember(memory, "pairs")),
        credit=anchor,
        learn=learn.Learn(learn.dpo(beta, on=authors), logp_temperature=1.0),
    )
    again = Phase(
        name="replay",
        draw=draw.stored(memory, replay),
        rollout=rollout.recalled(author="past", others=("demo",)),
        select=rule,
        credit=anchor,
        learn=learn.Learn(learn.dpo(beta, on=authors), logp_temperature=1.0),
    )
    models = roles(past=snapshot("policy", sync), **score.rm_role(reward_model))
    return Method(models=models, phases=(fresh, again), lr_share=0.1, sampling=Sampling(0.7, top_p=0.95))


@register(
    DNO,
    family="preference",
    summary="Rounds of cross-entropy between win rates and the policy's own odds.",
    when="As `dno`, with soft labels instead of thresholds.",
    trial=ROUND,
)
def dno_soft(
    task: draw.Source,
    *,
    n: opt.GroupSize = 5,
    eta: Eta = 0.1,
    sync: opt.Sync = 1 / 3,
    reward_model: opt.RewardModel = None,
) -> Method:
    """DNO as its theory writes it (Algorithm 1).

    r_t(y) = mean over y' ~ pi_t of P(y > y');  D = lr(y_1) - lr(y_2),  lr = log pi(y|x) - log pi_t(y|x)
    L = -s(r_1 - r_2) log s(eta D) - s(r_2 - r_1) log s(-eta D),  mean over pairs of n replies of pi_t

    Win rates are in [0, 1], so that labels are between s(-1) and s(1). eta is that of the practical version's beta. P
    is that of --preference; without one a reward model's sigmoid(r - r'), or 1, 1/2, 0 by the verifier.
    """
    preference = by_bradley_terry if reward_model else by_comparison
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, who="past"),
        score=chain(score.scoring(task, reward_model, author="past"), score.win_rates(preference)),
        select=select.every_pair("wins"),
        credit=chain(credit.streams("past", logp="past"), credit.shared("wins", "wins")),
        learn=learn.Learn(soft_preference(eta, on="past")),
        models=roles(past=snapshot("policy", sync), **score.rm_role(reward_model)),
        lr_share=0.1,
    )
