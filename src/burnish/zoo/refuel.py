"""Regressing the Relative Future: Efficient Policy Optimization for Multi-turn RLHF (arXiv 2410.04612)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Method, Option, Sampling, chain, everything, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

REFUEL = Paper(
    "refuel", "2410.04612", "Regressing the Relative Future: Efficient Policy Optimization for Multi-turn RLHF"
)


@register(
    REFUEL,
    family="agents",
    summary="Regress the difference of two futures on the log-ratios of the turns at which they part.",
    when="Dialogues of several turns with a reward at the end, and neither a critic nor a clip is wanted.",
    example="burnish train refuel --task guess",
    trial={"task": "guess", "longest": 3},
)
def refuel(
    task: draw.Source,
    *,
    longest: Annotated[int, Option("The most turns of an episode; the number is drawn.", at_least=1)] = 5,
    shortest: Annotated[int, Option("The fewest turns of an episode.", at_least=1)] = 1,
    eta: Annotated[float, Option("The step size.", above=0)] = 1.0,
    updates: opt.Updates = 1,
    reward_model: opt.RewardModel = None,
) -> Method:
    """REFUEL: REBEL over turns.

    H uniform in shortest .. longest, h uniform among the turns; from the state before turn h two replies y, y' ~ pi_t
    are each continued by pi_t to turn H, with rewards R, R' of the whole episodes
    L = mean over pairs of ( (1/eta) [log pi(y)/pi_t(y) - log pi(y')/pi_t(y')] - (R - R') )^2

    Only turn h is trained; log-probs are whole-turn sums at the sampling temperature. longest = 1 is REBEL without its
    KL. The released code minimises eta^2 times this with eta = 1000 and a learning rate of 3e-7, which differs by the
    scale of the loss. With one update for each batch, pi is pi_t where the gradient is taken, the log-ratios are 0, and
    the learning rate alone is the step size; eta acts from the second update on. Episodes that end before H draw h
    among the turns that they have. The environment is the simulated user; the paper's reward is a reward model's at the
    end (--reward-model), else the environment pays. A game that pays only when it is over should not be cut: there set
    shortest = longest = its turns.
    """
    by_model = (score.reward_model(name="judged"),) if reward_model else ()
    paid = "judged" if reward_model else "reward"
    return method(
        draw=draw.prompts(task, "env"),
        rollout=rollout.second_tries(longest, shortest),
        score=chain(*by_model) if by_model else everything,
        select=select.every_contrast(paid),
        credit=chain(credit.behaviour(), credit.reward_where_they_part(paid), credit.claim_where_they_part("pair")),
        learn=learn.Learn(learn.regress_rewards(1 / eta, anchor="old", on=learn.CLAIMED), updates=updates),
        models=roles(**score.rm_role(reward_model)),
        lr_share=0.1,
        sampling=Sampling(0.8),
    )
