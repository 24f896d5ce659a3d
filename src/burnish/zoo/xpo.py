"""Exploratory Preference Optimization: Harnessing Implicit Q*-Approximation for Sample-Efficient RLHF (arXiv
2405.21046).
"""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part, supplies
from burnish.core.preferences import by_comparison, chance
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.learn.terms.preference_unpaired import likelihood
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

XPO = Paper(
    "xpo",
    "2405.21046",
    "Exploratory Preference Optimization: Harnessing Implicit Q*-Approximation for Sample-Efficient RLHF",
)

Optimism = Annotated[float, Option("Weight of the bonus; 0 leaves it out.", at_least=0)]


@supplies("pairs")
def rival_pairs(own: str, rival: str, *, score: str = "reward") -> Part:
    """The i-th reply by the author `own` with the i-th by `rival`, the likelier winner preferred; ties are dropped.

    It is the better-scored one, or that of the run's oracle.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = []
        for group in groups:
            mine, theirs = ([t for t in group.traces if bool(t.by(who).any())] for who in (own, rival))
            met = [(a, b, chance(a, b, by_comparison, score)) for a, b in zip(mine, theirs, strict=False)]
            unequal = [(a, b) if wins > 0.5 else (b, a) for a, b, wins in met if wins != 0.5]
            group.traces = [trace for pair in unequal for trace in pair]
            group.pairs = [(2 * i, 2 * i + 1) for i in range(len(unequal))]
            if unequal:
                kept.append(group)
        step.notes.add("dropped/no_preference", len(groups) - len(kept), len(groups))
        return kept

    return Part(
        name=f"rival_pairs({own}, {rival})",
        call=call,
        reads=frozenset({f"score:{score}", f"tokens:{own}", f"tokens:{rival}"}),
        writes=frozenset({"pairs"}),
    )


@register(
    XPO,
    family="preference",
    summary="Online DPO against the reference's replies, whose likelihood is lowered: deliberate exploration.",
    when="Online DPO keeps to replies that the starting policy likes already.",
)
def xpo(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    beta: opt.Beta = 0.1,
    alpha: Optimism = 1e-5,
    reward_model: opt.RewardModel = None,
) -> Method:
    """XPO.

    y ~ pi,  y~ ~ ref, the better-scored of the two preferred;  lr = log pi(y|x) - log ref(y|x)
    L = mean over pairs of -log s( beta [lr_w - lr_l] ) + alpha mean over the reference's replies of log pi(y~|x)

    With a --preference the reply with P > 1/2 is preferred. The paper sums over all rounds so far; here, as in the
    usual implementation, over the batch. alpha = 0 is online DPO against the reference. The paper prints no numbers for
    language models: alpha and beta are those in use.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.join(rollout.sample(n), rollout.sample(n, who="ref", tag="ref")),
        score=score.scoring(task, reward_model),
        select=rival_pairs("policy", "ref"),
        credit=credit.ref(),
        learn=learn.Learn(learn.dpo(beta, on=("policy", "ref")), likelihood(coef=alpha, on="ref")),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )
