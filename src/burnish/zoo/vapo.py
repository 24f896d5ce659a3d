"""VAPO: Efficient and Reliable Reinforcement Learning for Advanced Reasoning Tasks (arXiv 2504.05118)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.core.schedules import after, before
from burnish.method import Method, Option, Phase, Trace, chain, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper

VAPO = Paper("vapo", "2504.05118", "VAPO: Efficient and Reliable Reinforcement Learning for Advanced Reasoning Tasks")


@register(
    VAPO,
    family="policy",
    summary="PPO for long reasoning: a value model trained first, lambda by length, imitation of its own successes.",
    when="Long reasoning with a value model, when replies differ much in length and rewards come at the end.",
    trial={"n": 4, "value_warmup": 0},
)
def vapo(
    task: draw.Source,
    *,
    n: opt.Replies = 16,
    eps_low: opt.ClipLow = 0.2,
    eps_high: opt.ClipHigh = 0.28,
    alpha: Annotated[float, Option("How lambda grows with the length.", above=0, unlimited=True)] = 0.05,
    positive: Annotated[float, Option("Weight of imitating correct replies.", at_least=0)] = 0.1,
    value_warmup: Annotated[int, Option("Steps in which the value model alone is trained.", at_least=0)] = 50,
    critic_lr: opt.CriticLR = 2.0,
    updates: opt.Updates = 1,
    minibatches: opt.Minibatches = 1,
) -> Method:
    """Value-augmented PPO.

    First `value_warmup` steps: V -> R, R the Monte-Carlo return of the policy, which does not move
    A_t by GAE with lambda = max(0, 1 - 1/(alpha |y|)), whitened;   V -> R with lambda = 1;   gamma = 1, no KL
    L = mean over tokens of -min(rho A, clip(rho, 1-eps_low, 1+eps_high) A)  +  mean over tokens of (V - R)^2 / 2
      + positive * mean over the tokens of correct replies of -log pi

    lambda makes the sum of its powers alpha |y|: long replies look further. Below |y| = 1/alpha the formula is
    negative; it is held at 0, where the paper is silent. A reply is correct where its score is above 0.5. The
    warm-up's length, the value loss and the whitening are not in the sources at hand: they are common practice.
    """
    learn_value = Phase(
        name="value",
        times=before(value_warmup),
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.token_rewards(kl=None), credit.monte_carlo()),
        learn=learn.Learn(learn.value_fit("returns")),
    )
    main = Phase(
        times=after(value_warmup),
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(
            credit.behaviour(),
            credit.streams("critic", "policy", value="value"),
            credit.token_rewards(kl=None),
            credit.gae(lam=length_adaptive(alpha), value_lam=1.0),
            credit.whiten(),
            credit.claim("positive", "policy", where=_correct, needs=("score:reward",)),
        ),
        learn=learn.Learn(
            learn.pg_clip(eps_low, eps_high),
            learn.value_clip(math.inf),
            learn.imitate(coef=positive, on=learn.CLAIMED, name="positive"),
            updates=updates,
            minibatches=minibatches,
        ),
    )
    return Method(models=roles(critic=trained(outputs=1, lr=critic_lr)), phases=(learn_value, main))


def length_adaptive(alpha: float) -> Callable[[int], float]:
    """VAPO's lambda of a reply's length: max(0, 1 - 1 / (alpha length))."""
    return lambda length: max(0.0, 1.0 - 1.0 / (alpha * length))


def _correct(trace: Trace) -> bool:
    return trace.scores["reward"] > 0.5
