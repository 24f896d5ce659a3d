"""Confronting Reward Model Overoptimization with Constrained RLHF (arXiv 2310.04373)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.core.roles import trained
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, register
from burnish.methods.actor_critic import anchors
from burnish.papers import Paper
from burnish.score.maths.multipliers import EQUALITY, INEQUALITY, SquashedMultipliers

CONSTRAINED_RLHF = Paper(
    "constrained-rlhf", "2310.04373", "Confronting Reward Model Overoptimization with Constrained RLHF"
)

SQUASHES = {"at_least": INEQUALITY, "equal": EQUALITY}


def read_thresholds(text: str) -> dict[str, float]:
    """ "math=0.9,brief=0.5" as a mapping; raises ValueError for what is none."""
    found: dict[str, float] = {}
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, value = piece.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise ValueError(
                f"thresholds: {piece!r} is no NAME=NUMBER; write the names of rewards: math=0.9,brief=0.5"
            ) from None
    if not found:
        raise ValueError("thresholds is empty; name at least one reward: math=0.9,brief=0.5")
    return found


@register(
    CONSTRAINED_RLHF,
    family="policy",
    summary="PPO that stays near the start and brings each reward to its threshold, not beyond.",
    when="Several reward models are over-optimised beyond a point that you know, or found by a sweep.",
    example="burnish train constrained_rlhf --reward 'math,my.py:brief' --thresholds math=0.9,brief=0.5",
    trial={"n": 2, "updates": 1, "thresholds": "correct=0.5"},
)
def constrained_rlhf(
    task: draw.Source,
    *,
    thresholds: Annotated[str, Option("The threshold of each reward by name: math=0.9,brief=0.5.")] = "correct=0.9",
    constraint: Annotated[
        str, Option("Whether rewards must reach their thresholds or equal them.", choices=("at_least", "equal"))
    ] = "at_least",
    multiplier_lr: Annotated[float, Option("Step size of the multipliers.", at_least=0)] = 0.1,
    momentum: Annotated[float, Option("Momentum of the multipliers.", at_least=0, below=1)] = 0.1,
    n: opt.Replies = 1,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    gamma: opt.Gamma = 1.0,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 4,
    critic_lr: opt.CriticLR = 1.0,
) -> Method:
    """Constrained RLHF (mu-PPO for at_least, xi-PPO for equal): minimise the KL subject to E[r_i] >= theta_i, or =.

    A = (N - sum_i mu_i) A_KL + sum_i mu_i A_i, every A by GAE from its own value head, standardised before mixing
    mu_i = sigmoid(raw_i) (at_least; starts at 1/2) or tanh(raw_i) (equal; starts at 0: pure KL, may become negative)
    raw_i by SGD with momentum on mu_i (mean r_i - theta_i): a reward above its threshold loses weight
    L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + value_coef mean over tokens of sum over heads of max((V - R)^2, (V_clip - R)^2) / 2

    Rewards are those of --reward by their names, and `correct`. multiplier_lr 0: weighted-sum RLHF with fixed weights.
    theta_i are proxy points beyond which the true score falls; find them by runs with one reward each and an
    evaluation that you trust (the paper also searches them within a run by Nelder-Mead, which is left out).
    """
    theta = read_thresholds(thresholds)
    multipliers = SquashedMultipliers(theta, SQUASHES[constraint], multiplier_lr, momentum)
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(anchors(), credit.mixed_advantages(multipliers, gamma=gamma, lam=lam)),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_heads_clip(value_eps, coef=value_coef), updates=updates),
        models=roles(ref=frozen("policy"), critic=trained(outputs=len(theta) + 1, lr=critic_lr)),
    )
