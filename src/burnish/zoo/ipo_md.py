"""Human Alignment of Large Language Models through Online Preference Optimisation (arXiv 2403.08635)."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.core.schedules import Schedule
from burnish.credit import by_bradley_terry, by_comparison
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import pair_term
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

IPO_MD = Paper(
    "ipo-md", "2403.08635", "Human Alignment of Large Language Models through Online Preference Optimisation"
)

Tau = Annotated[float, Option("Strength of the regulariser; the margin's target is 1 / (2 tau).", above=0)]


def ipo_soft(logratio_1: Tensor, logratio_2: Tensor, preference: Tensor, tau: float) -> Tensor:
    """IPO with the probability p that the first reply is preferred (Calandriello et al., arXiv 2403.08635), per pair.

        L = p (d - 1/(2 tau))^2 + (1 - p) (-d - 1/(2 tau))^2,   d = lr_1 - lr_2

    It equals (d - (2p - 1)/(2 tau))^2 plus a constant. p = 1 is `ipo_squared`.
    """
    d, target = logratio_1 - logratio_2, 1 / (2 * tau)
    return preference * (d - target).square() + (1 - preference) * (-d - target).square()


def soft_ipo(tau: Schedule, *, on: Authors = "policy") -> Term:
    """IPO whose label is the chance that w is preferred, in stream "preference"."""
    return pair_term(
        lambda w, r, tau: ipo_soft(w.logratio, r.logratio, w["preference"].to(w.logratio), tau),
        beta=tau,
        marks=("preference",),
        on=on,
    )


@register(
    IPO_MD,
    family="preference",
    summary="IPO on pairs of the policy's own samples: its fixed point is a Nash equilibrium.",
    when="As `online_dpo`, when preferences are not transitive or nearly certain.",
)
def online_ipo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 2,
    tau: Tau = 0.1,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Online IPO: `ipo_md` whose samples are the policy's alone.

    d = lr(y) - lr(y'),  lr = log pi(y|x) - log ref(y|x);  p = P(y > y')
    L = p (d - 1/(2 tau))^2 + (1 - p) (-d - 1/(2 tau))^2,  mean over pairs

    The pair is the best and the worst of n replies. p is that of --preference; without one a reward model's
    sigmoid(r - r'), or 1 by the verifier.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        select=select.best_vs_worst(),
        credit=chain(credit.ref(), credit.pair_preference(by_bradley_terry if reward_model else by_comparison)),
        learn=learn.Learn(soft_ipo(tau)),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    IPO_MD,
    family="preference",
    summary="IPO on samples of a geometric mixture of the policy and the reference.",
    when="As `online_ipo`, when self-play is unstable.",
)
def ipo_md(
    task: draw.Source,
    *,
    n: opt.GroupSize = 2,
    tau: Tau = 0.1,
    alpha: Annotated[float, Option("Share of the reference in the mixture.", at_least=0, at_most=1)] = 0.25,
    reward_model: opt.RewardModel = None,
) -> Method:
    """IPO-MD.

    y, y' ~ softmax((1 - alpha) log pi + alpha log ref) token by token, without gradient
    d = lr(y) - lr(y'),  lr = log pi(y|x) - log ref(y|x);  p = P(y > y')
    L = p (d - 1/(2 tau))^2 + (1 - p) (-d - 1/(2 tau))^2,  mean over pairs

    alpha = 0 is `online_ipo`. Both replies come from the mixture, unlike Nash-MD, where only the opponent's do. The
    paper's alpha and tau were not available: alpha is in the range that Nash-MD found best.
    """
    mixture = rollout.geometric("ref", alpha)
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, blend=mixture, author="mixture"),
        score=score.scoring(task, reward_model, author="mixture"),
        select=select.best_vs_worst(),
        credit=chain(credit.ref(), credit.pair_preference(by_bradley_terry if reward_model else by_comparison)),
        learn=learn.Learn(soft_ipo(tau, on="mixture")),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )
