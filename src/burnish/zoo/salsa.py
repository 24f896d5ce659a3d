"""SALSA: Soup-based Alignment Learning for Stronger Adaptation in RLHF (arXiv 2411.01798)."""

from __future__ import annotations

from typing import Annotated

from burnish.method import Option, soup
from burnish.methods import Arguments, register, variant
from burnish.methods.policy import ppo
from burnish.papers import Paper

SALSA = Paper("salsa", "2411.01798", "SALSA: Soup-based Alignment Learning for Stronger Adaptation in RLHF")


@register(
    SALSA,
    family="policy",
    summary="PPO held near the average of two fine-tuned models instead of near its own start.",
    when="You have two fine-tuned models and fear that a single reference is too narrow to explore around.",
    trial={"n": 2, "updates": 1, "other": "tiny"},
)
@variant(ppo)
def salsa(
    *,
    other: Annotated[str, Option("The second model's name or directory.")],
    share: Annotated[float, Option("The second model's share in the soup.", at_least=0, at_most=1)] = 0.5,
) -> Arguments:
    """SALSA: PPO whose reference is a soup.

    theta_ref = (1 - share) theta_start + share theta_other, two models fine-tuned apart from one base; else `ppo`:
    r_t = -kl log(pi_old/ref)(y_t), plus the score at the last token

    share = 0 is PPO. The PPO constants are `ppo`'s, the paper does not print all of its own. The paper finds a
    share of 0.5 best.
    """
    return {"minibatches": 1, "critic": None, "models": {"ref": soup("base", other, share)}}
