"""REBEL: Reinforcement Learning via Regressing Relative Rewards (arXiv 2404.16767)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Method, Option, Sampling, chain, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

REBEL = Paper("rebel", "2404.16767", "REBEL: Reinforcement Learning via Regressing Relative Rewards")

_Penalty = Annotated[float, Option("Penalty on log(pi_old/ref), inside the reward.", at_least=0)]


@register(
    REBEL,
    family="policy",
    summary="Regress the reward difference of two replies on their log-ratios.",
    when="You have scores of pairs and want neither a critic nor a clip: a regression that is stable off-policy.",
)
def rebel(
    task: draw.Source,
    *,
    n: opt.GroupSize = 2,
    eta: Annotated[float, Option("The step size.", above=0)] = 1.0,
    kl: _Penalty = 0.05,
    updates: opt.Updates = 4,
    reward_model: opt.RewardModel = None,
) -> Method:
    """REBEL: policy optimisation as a regression of reward differences.

    L = mean over pairs of ( (1/eta) [log pi(y)/pi_t(y) - log pi(y')/pi_t(y')] - [r(y) - r(y')] )^2,  y, y' ~ pi_t
    r = score - kl log pi_t(y)/ref(y)

    pi_t is the policy that sampled; log-probs are of whole replies, at the sampling temperature. The constants are
    those of the released summarisation runs; their reward of -1 for a reply that does not end is left out. The
    paper's 2 replies make one pair; more make all their pairs.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        select=select.every_contrast(),
        credit=chain(credit.behaviour(), credit.ref(), credit.token_rewards(kl=kl)),
        learn=learn.Learn(learn.regress_rewards(1 / eta, anchor="old"), updates=updates),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
        sampling=Sampling(0.7),
    )
