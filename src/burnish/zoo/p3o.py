"""Pairwise Proximal Policy Optimization: Harnessing Relative Feedback for LLM Alignment (arXiv 2310.00212)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.schedules import Schedule
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import pair_term
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import Arguments, opt, register, variant
from burnish.papers import Paper

P3O = Paper(
    "p3o", "2310.00212", "Pairwise Proximal Policy Optimization: Harnessing Relative Feedback for LLM Alignment"
)

_Penalty = Annotated[float, Option("Penalty on log(pi_old/ref), inside the reward.", at_least=0)]


def pairwise_joint(logratio_a: Tensor, logratio_b: Tensor, adv: Tensor, eps: float) -> Tensor:
    """P3O's pairwise surrogate (arXiv 2310.00212) with the pair clipped as one, per pair [P].

        rho = exp(logratio),  d = logratio_a - logratio_b,  A = (r_a - r_b) / 2,  c = log(1 + eps)
        L = -sg[rho_a rho_b] min(A d, A clip(d, -c, c))

    The gradient inside the clip is -A rho_a rho_b grad log(pi(a) / pi(b)), the paper's; it stops once the odds between
    the two replies have moved by 1 + eps in the direction of A.
    """
    assert logratio_a.shape == logratio_b.shape == adv.shape
    both = (logratio_a + logratio_b).detach().exp()
    d, c = logratio_a - logratio_b, math.log1p(eps)
    return -both * torch.minimum(adv * d, adv * d.clamp(-c, c))


def pairwise_separate(logratio_a: Tensor, logratio_b: Tensor, adv: Tensor, eps: float) -> Tensor:
    """P3O's pairwise surrogate (arXiv 2310.00212) with each reply clipped by itself, per pair [P].

        rho = exp(logratio),  A = (r_a - r_b) / 2
        L = -sg[rho_b] min(rho_a A, clip(rho_a, 1 - eps, 1 + eps) A) - sg[rho_a] min(-rho_b A, -clip(rho_b, 1 - eps, 1 +
        eps) A)

    The gradient inside the clips is -A rho_a rho_b grad log(pi(a) / pi(b)), the paper's.
    """
    assert logratio_a.shape == logratio_b.shape == adv.shape
    a, b = logratio_a.exp(), logratio_b.exp()
    first = torch.minimum(a * adv, a.clamp(1 - eps, 1 + eps) * adv)
    second = torch.minimum(-b * adv, -b.clamp(1 - eps, 1 + eps) * adv)
    return -b.detach() * first - a.detach() * second


PairSurrogate = Callable[[Tensor, Tensor, Tensor, float], Tensor]  # (logratio_a, logratio_b, adv, eps) -> [P]


def pg_pair(
    surrogate: PairSurrogate, eps: float, *, coef: Schedule = 1.0, on: Authors = "policy", name: str = "pair"
) -> Term:
    """A pairwise policy gradient: A = half the difference of the replies' summed stream "reward", anchored on "old"."""

    return pair_term(
        lambda a, b, _: surrogate(a.logratio, b.logratio, (a["reward"] - b["reward"]) / 2, eps),
        anchor="old",
        streams=("reward",),
        notes=lambda a, b, _: {"odds": (a.logratio - b.logratio).exp()},
        coef=coef,
        on=on,
        name=name,
    )


def pairwise(
    task: draw.Source,
    *,
    surrogate: PairSurrogate,
    n: opt.GroupSize = 2,
    eps: opt.ClipRange = 0.2,
    kl: _Penalty = 0.05,
    updates: opt.Updates = 4,
    reward_model: opt.RewardModel = None,
) -> Method:
    """P3O with any surrogate of a pair."""
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        select=select.every_contrast(),
        credit=chain(credit.behaviour(), credit.ref(), credit.token_rewards(kl=kl)),
        learn=learn.Learn(pg_pair(surrogate, eps), updates=updates),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    P3O,
    family="policy",
    summary="A policy gradient on pairs, invariant to a shift of the reward; pairs clipped as one.",
    when="Only differences of rewards mean anything, as with a reward model that was trained on comparisons.",
)
@variant(pairwise)
def p3o(*, eps: Annotated[float, Option("The clip range of the odds.", at_least=0, unlimited=True)] = 0.2) -> Arguments:
    """P3O with the pair clipped jointly (the paper's V2).

    grad = E of A rho_1 rho_2 grad log( pi(y1) / pi(y2) ),  A = (r_1 - r_2) / 2,  rho = pi/pi_old of a whole reply
    L = mean over pairs of -sg[rho_1 rho_2] min(A d, A clip(d, -c, c)),  d = log rho_1/rho_2,  c = log(1 + eps)
    r = score - kl log pi_old(y)/ref(y)

    The gradient inside the clip and the KL inside the reward are the paper's (its equation 6, theorem 1 and
    algorithm); the exact form of its clip could not be read, this one is a reconstruction that is the same when the
    replies are swapped, and eps, kl and updates are those of PPO here. The paper's 2 replies make one pair; more
    make all their pairs.
    """
    return {"surrogate": pairwise_joint, "eps": eps}


@register(
    P3O,
    family="policy",
    summary="P3O with each reply of a pair clipped by itself.",
    when="As `p3o`, when the two replies of a pair drift apart at different speeds.",
)
@variant(pairwise)
def p3o_separate() -> Arguments:
    """P3O with the two replies clipped separately (the paper's V1).

    L = mean over pairs of -sg[rho_2] min(rho_1 A, clip(rho_1) A) - sg[rho_1] min(-rho_2 A, -clip(rho_2) A)
    A = (r_1 - r_2) / 2,  clip(rho) to [1 - eps, 1 + eps]

    The rest, what is reconstructed too, is as in `p3o`.
    """
    return {"surrogate": pairwise_separate}
