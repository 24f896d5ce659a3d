"""GDPO: Group reward-Decoupled Normalization Policy Optimization for Multi-reward RL Optimization (arXiv
2601.05242).
"""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, papers, register


@register(
    papers.GDPO,
    family="policy",
    summary="Several rewards, each normalised in its group before they are added.",
    when="Replies are scored on several counts at once, and one would drown the others if they were added first.",
)
def gdpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    correct_weight: Annotated[float, Option("Weight of the scorer's reward.", at_least=0)] = 1.0,
    length_weight: Annotated[float, Option("Weight of the length reward.", at_least=0)] = 1.0,
    within_share: Annotated[float, Option("The limit of length, as a share of the longest.", above=0, at_most=1)] = 0.5,
    updates: opt.Updates = 1,
    reward_model: opt.RewardModel = None,
) -> Method:
    """GDPO with two rewards: being right (r_1, the scorer's) and being short (r_2 = 1 within a limit, else 0).

    a_k,i = (r_k,i - mean) / (std + 1e-4) over the replies to the prompt;   s_i = sum_k w_k a_k,i
    A_i = (s_i - mean s) / (std s + 1e-4) over all replies of the batch
    L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)

    The batch normalisation is over replies, as in the paper's equation (one of its two codes whitens tokens). No
    KL. The released recipes sample 4 and 16 replies.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=chain(score.scoring(task, reward_model), score.within(within_share)),
        credit=chain(credit.decoupled({"reward": correct_weight, "within": length_weight}), credit.behaviour()),
        learn=learn.Learn(learn.pg_clip(eps), updates=updates),
        models=roles(**score.rm_role(reward_model)),
    )
