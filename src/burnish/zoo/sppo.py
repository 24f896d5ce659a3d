"""Self-Play Preference Optimization for Language Model Alignment (arXiv 2405.00675)."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.core.roles import snapshot
from burnish.core.schedules import Schedule
from burnish.credit import by_bradley_terry, by_comparison
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import pair_term
from burnish.method import Method, Option, Sampling, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

SPPO = Paper("sppo", "2405.00675", "Self-Play Preference Optimization for Language Model Alignment")

Eta = Annotated[float, Option("Step size of the game.", above=0)]
ROUND = {"n": 4, "sync": 1}


def sppo_squared(logratio_w: Tensor, logratio_l: Tensor, wins_w: Tensor, wins_l: Tensor, eta: float) -> Tensor:
    """SPPO (Wu et al., arXiv 2405.00675), per pair, with the authors' factor 1/2.

        L = [ (lr_w - eta (P_w - 1/2))^2 + (lr_l - eta (P_l - 1/2))^2 ] / 2

    lr is relative to the previous iterate, P the chance to win against that iterate's own replies. Each reply has its
    own target, so the preferred one rises and the other falls independently.
    """
    return ((logratio_w - eta * (wins_w - 0.5)).square() + (logratio_l - eta * (wins_l - 0.5)).square()) / 2


def win_rate_targets(eta: Schedule, *, anchor: str = "past", on: Authors = "policy") -> Term:
    """SPPO: each reply's log-ratio regresses eta (P - 1/2), its win rate in stream "wins"."""
    return pair_term(
        lambda w, r, eta: sppo_squared(w.logratio, r.logratio, w["wins"], r["wins"], eta),
        beta=eta,
        anchor=anchor,
        marks=("wins",),
        on=on,
    )


@register(
    SPPO,
    family="preference",
    summary="Self-play: each reply's log-ratio regresses how often it beats the last round's replies.",
    when="Preferences from a model, possibly not transitive; both replies should move independently.",
    trial=ROUND,
)
def sppo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 5,
    eta: Eta = 1000.0,
    sync: opt.Sync = 1 / 3,
    reward_model: opt.RewardModel = None,
) -> Method:
    """SPPO.

    y_1..y_n ~ pi_t;  P_i = mean over j of P(y_i > y_j), itself included;  w, l = the best and the worst
    L = [ (lr_w - eta (P_w - 1/2))^2 + (lr_l - eta (P_l - 1/2))^2 ] / 2,  lr = log pi(y|x) - log pi_t(y|x),  mean

    pi_t is the policy at the start of the round. The constants are the paper's, which has three rounds of an epoch. P
    is that of --preference (the paper's is PairRM: pair_rm); without one a reward model's sigmoid(r - r'), or 1, 1/2, 0
    by the verifier. AdamW instead of RMSprop.
    """
    preference = by_bradley_terry if reward_model else by_comparison
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, who="past"),
        score=chain(score.scoring(task, reward_model, author="past"), score.win_rates(preference)),
        select=select.best_vs_worst("wins"),
        credit=chain(credit.streams("past", logp="past", logp_temperature=1.0), credit.shared("wins", "wins")),
        learn=learn.Learn(win_rate_targets(eta, on="past"), logp_temperature=1.0),
        models=roles(past=snapshot("policy", sync), **score.rm_role(reward_model)),
        lr_share=0.1,
        sampling=Sampling(0.7, top_p=0.9),
    )
