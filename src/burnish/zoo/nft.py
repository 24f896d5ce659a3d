"""Bridging Supervised Learning and Reinforcement Learning in Math Reasoning (arXiv 2505.18116)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from torch import Tensor

from burnish import credit, draw, learn, rollout, score, select
from burnish.learn.maths.right_and_wrong import odds_root, share_wrong
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

NFT = Paper("nft", "2505.18116", "Bridging Supervised Learning and Reinforcement Learning in Math Reasoning")

WEIGHTS: dict[str, Callable[[Tensor], Tensor]] = {"dr_grpo": share_wrong, "grpo": odds_root}


@register(
    NFT,
    family="policy",
    summary="Supervised learning from right replies and, through an implicit negative policy, from wrong ones.",
    when="You want to stay with supervised learning and still learn from wrong replies.",
)
def nft(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: Annotated[float, Option("The floor under a wrong token's likelihood.", above=0)] = 1.0,
    weight: Annotated[str, Option("How prompts are weighed.", choices=("dr_grpo", "grpo"))] = "dr_grpo",
    negative: Annotated[float, Option("Weight of wrong replies; 0 leaves rejection fine-tuning.", at_least=0)] = 1.0,
    minibatches: opt.Minibatches = 4,
) -> Method:
    """Negative-aware fine-tuning.

    R = pi/pi_old at the token;  q = share of a prompt's replies that are right, in [0.02, 0.98];  only 0 < q < 1
    right:  -omega log R;   wrong:  -omega log max_v((1 - q R)/(1 - q), eps),  the larger value, the first's gradient
    L = sum over tokens / (replies x longest reply);   omega = 1 - q (dr_grpo) or sqrt((1 - q)/q) (grpo)

    On-policy its gradient is that of Dr. GRPO, or of GRPO, whence the weights' names. eps = 1 is the released
    code's. Departures: the code divides the sum by 1000, a constant as ours is; it counts replies that were cut off
    as wrong, where here the verifier decides. The paper samples 16 replies to 512 prompts and makes 16 updates of
    them.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        select=select.mixed(),
        credit=chain(
            credit.right(), credit.pass_rate(0.02, 0.98), credit.behaviour(), credit.claim("nft", "policy", tag="mixed")
        ),
        learn=learn.Learn(
            learn.negative_aware(eps, WEIGHTS[weight], negative, norm=learn.constant(), on=learn.CLAIMED),
            minibatches=minibatches,
        ),
        models=roles(),
    )
