"""RL-PLUS: Countering Capability Boundary Collapse of LLMs in Reinforcement Learning with Hybrid-policy
Optimization (arXiv 2508.00222).
"""

from __future__ import annotations

import math
from typing import Annotated

from burnish import credit, draw, learn
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
    mixture = learn.pg_mixture(uniform, gamma, norm=learn.constant(), coef=1 / n)
    advantages = chain(
        credit.group_relative(std=std),
        credit.old(logp_temperature="run"),
        credit.copies(adv="demo_adv", old="demo_old"),
    )
    return with_a_demonstration(task, n, advantages, mixture, math.inf, entropy)
