"""Multiplayer Nash Preference Optimization (arXiv 2509.23102)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.core.roles import snapshot
from burnish.learn.terms import preference_pairs as pairs
from burnish.method import Method, Option, Sampling, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

MNPO = Paper("mnpo", "2509.23102", "Multiplayer Nash Preference Optimization")

Eta = Annotated[float, Option("Step size of the game.", above=0)]
ROUND = {"n": 4, "sync": 1}


@register(
    MNPO,
    family="preference",
    summary="INPO against a population: the reference and the last two rounds' policies.",
    when="As `inpo`, when playing against one opponent goes round in circles.",
    trial=ROUND,
)
def mnpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 5,
    eta: Eta = 0.0075,
    share: Annotated[float, Option("The reference's share of the anchor.", at_least=0, at_most=1)] = 1 / 3,
    sync: opt.Sync = 1 / 3,
    reward_model: opt.RewardModel = None,
) -> Method:
    """MNPO with past policies as the opponents.

    h = log pi(y_w)/pi(y_l) - sum_j lambda_j log pi_j(y_w)/pi_j(y_l),  pi_j: ref, pi_t, pi_{t-1};  L = (h - 1/(2 eta))^2

    lambda is share on the reference and the rest in equal parts on the two rounds, as in the authors' code. Log-probs
    are summed over the reply, as in the paper; the code takes means. A population of one round is `inpo`; with a
    --preference the loss is the mean over both labels of a pair, as there.
    """
    rest = (1 - share) / 2
    weights = {"ref": share, "past": rest, "earlier": rest}
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, who="past"),
        score=score.scoring(task, reward_model, author="past"),
        select=select.best_vs_worst(),
        credit=chain(
            *(credit.streams(who, logp=who, logp_temperature=1.0) for who in weights),
            credit.pair_preference(credit.by_comparison),
        ),
        learn=learn.Learn(pairs.against_population(1 / (2 * eta), weights, on="past"), logp_temperature=1.0),
        models=roles(
            ref=frozen("policy"),
            past=snapshot("policy", sync),
            earlier=snapshot("past", sync),
            **score.rm_role(reward_model),
        ),
        lr_share=0.1,
        sampling=Sampling(0.8, top_p=0.95),
    )
