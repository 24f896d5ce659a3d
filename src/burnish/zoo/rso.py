"""Statistical Rejection Sampling Improves Preference Optimization (arXiv 2309.06657)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from torch import Tensor

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.core.schedules import Schedule
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import pair_term
from burnish.method import Method, Option, Sampling, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

RSO = Paper("rso", "2309.06657", "Statistical Rejection Sampling Improves Preference Optimization")


def hinge_loss(logratio_w: Tensor, logratio_l: Tensor, gamma: float) -> Tensor:
    """max(0, 1 - gamma d): hinge-norm of RSO (arXiv 2309.06657) and pair-hinge of LiPO (arXiv 2402.01878), per pair."""
    return (1 - gamma * (logratio_w - logratio_l)).clamp(min=0)


def hinge(gamma: Schedule, *, on: Authors = "policy") -> Term:
    """max(0, 1 - gamma d) on the pairs."""
    return pair_term(lambda w, r, gamma: hinge_loss(w.logratio, r.logratio, gamma), beta=gamma, on=on)


LOSSES: dict[str, Callable[..., learn.Term]] = {"logistic": learn.dpo, "hinge": hinge}


@register(
    RSO,
    family="preference",
    summary="Pairs from statistical rejection sampling: about what the optimal policy would write.",
    when="A reward model, and pairs that should come from the optimal policy rather than from the start.",
    trial={"n": 6, "accept": 4},
)
def rso(
    task: draw.Source,
    *,
    n: opt.GroupSize = 64,
    accept: Annotated[int, Option("Replies that rejection sampling accepts.", at_least=2)] = 8,
    beta: Annotated[float, Option("Temperature of rejection sampling; small values take the best.", above=0)] = 0.5,
    gamma: Annotated[float, Option("Scale of the margin in the loss.", above=0)] = 0.05,
    loss: Annotated[str, Option("The loss on a pair.", choices=tuple(LOSSES))] = "logistic",
    reward_model: opt.RewardModel = None,
) -> Method:
    """RSO.

    y_1..y_n ~ ref;  pass after pass, y is accepted with chance e^((r - r_max)/beta), r_max the largest reward left
    neighbours among the accepted are paired;  d = lr_w - lr_l,  lr = log pi(y|x) - log ref(y|x)
    L = -log s(gamma d) (logistic) or max(0, 1 - gamma d) (hinge),  mean over pairs

    The constants are the paper's, whose rewards come from a pairwise model. Pairs are a tournament's first round.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, who="ref"),
        score=score.scoring(task, reward_model, author="ref"),
        select=chain(select.keep_accepted(beta, accept), select.first_round("accepted")),
        credit=credit.ref(logp_temperature=1.0),
        learn=learn.Learn(LOSSES[loss](gamma, on="ref"), logp_temperature=1.0),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
        sampling=Sampling(0.7, top_k=40),
    )
