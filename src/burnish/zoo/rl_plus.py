"""RL-PLUS: Countering Capability Boundary Collapse of LLMs in Reinforcement Learning with Hybrid-policy
Optimization (arXiv 2508.00222).
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn
from burnish.core.schedules import Schedule
from burnish.learn.norms import Norm, token_mean
from burnish.learn.term import Authors, Live, Term
from burnish.method import Method, Option, chain
from burnish.methods import opt, register
from burnish.methods.hybrid import with_a_demonstration
from burnish.papers import Paper

RL_PLUS = Paper(
    "rl-plus",
    "2508.00222",
    "RL-PLUS: Countering Capability Boundary Collapse of LLMs in Reinforcement Learning with "
    "Hybrid-policy Optimization",
)

_GroupWithDemo = Annotated[int, Option("Replies for each prompt, one of them the demonstration.", at_least=2)]


def mixture_ratio(logp: Tensor, old: Tensor, uniform: float) -> Tensor:
    """RL-PLUS's multiple importance sampling ratio (arXiv 2508.00222), per token; old = log pi_old, held.

        pi_omega = (pi_old + U) / 2        the unknown demonstrator, between the old policy and a flat one
        r = 2 p / (pi_omega + pi_old) = 4 p / (U + 3 p_old)

    Shapes: all [N]. U = 1 bounds the ratio by 4 for any token; U = p_old gives the ordinary p / p_old.
    """
    assert logp.shape == old.shape, (logp.shape, old.shape)
    return 4 * logp.exp() / (uniform + 3 * old.exp())


def exploration_weight(logp: Tensor, power: float) -> Tensor:
    """RL-PLUS's weight of an advantage, (1 - sg[p])^power: tokens that the policy already writes teach little.

    Shape [N], no gradient. power = 0 is 1 everywhere.
    """
    return (1 - logp.detach().exp()).clamp(min=0) ** power


def mixture_surrogate(logp: Tensor, old: Tensor, adv: Tensor, uniform: float, power: float) -> Tensor:
    """RL-PLUS's loss on a demonstrated token: -r A (1 - sg[p])^power, with r from `mixture_ratio`; no clip. Shapes: all
    [N].
    """
    assert logp.shape == adv.shape, (logp.shape, adv.shape)
    return -mixture_ratio(logp, old, uniform) * exploration_weight(logp, power) * adv


def pg_mixture(
    uniform: float,
    power: float,
    *,
    norm: Norm = token_mean,
    coef: Schedule = 1.0,
    on: Authors = "demo",
    name: str = "demo",
) -> Term:
    """RL-PLUS's surrogate on stream "demo_adv", anchored on stream "demo_old": the policy's own log-probs before the
    update.
    """

    def loss(live: Live) -> torch.Tensor:
        live.note("nll", -live.logp)
        live.note("ratio", mixture_ratio(live.logp, live.demo_old, uniform))
        return mixture_surrogate(live.logp, live.demo_old, live.demo_adv, uniform, power)

    streams = ("demo_adv", "demo_old")
    return Term(name=name, on=on, unit="token", loss=loss, live=("logp",), streams=streams, norm=norm, coef=coef)


@register(
    RL_PLUS,
    family="hybrid",
    summary="A demonstration joins each group by multiple importance sampling, its surprising tokens first.",
    when="As `luffy`, when the author's probabilities are unknown and plain importance weights would be wild.",
)
def rl_plus(
    task: draw.Source,
    *,
    n: _GroupWithDemo = 8,
    gamma: Annotated[float, Option("How much more a surprising token counts; 0 for no more.", at_least=0)] = 0.5,
    uniform: Annotated[float, Option("The flat part of the unknown demonstrator's probability.", at_least=0)] = 1.0,
    std: Annotated[bool, Option("Divide advantages by the group's standard deviation, as the paper writes.")] = False,
    entropy: opt.EntropyCoef = 0.001,
) -> Method:
    """RL-PLUS: n - 1 samples and one demonstration in each group; no clip on either.

    A_i = r_i - mean r over all n;  rho = pi/pi_old
    a demonstrated token has r = 2 p / (pi_omega + p_old), pi_omega = (p_old + uniform) / 2
    so r = 4 p / (uniform + 3 p_old);   A^c = A (1 - sg[p])^gamma
    p_old is the policy's own probability of the token before the update
    L = [ sum over sampled tokens of -rho A + sum over demonstrated ones of -r A^c ] / (all sequences x longest reply)
      - entropy x mean entropy of all reply tokens

    The constants are the released run's; the paper also divides A by the standard deviation. That the entropy is
    averaged over tokens is the natural reading, not checked. uniform = 1 is the released code's.
    """
    mixture = pg_mixture(uniform, gamma, norm=learn.constant_over_all())
    advantages = chain(
        credit.group_relative(std=std),
        credit.old(logp_temperature="run"),
        credit.copies(adv="demo_adv", old="demo_old"),
    )
    return with_a_demonstration(task, n, advantages, mixture, math.inf, entropy)
