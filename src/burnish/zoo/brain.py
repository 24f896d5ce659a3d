"""BRAIn: Bayesian Reward-conditioned Amortized Inference for natural language generation from feedback (arXiv
2402.02479).
"""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.core.roles import snapshot
from burnish.learn.terms import preference_lists as lists
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

BRAIN = Paper(
    "brain",
    "2402.02479",
    "BRAIn: Bayesian Reward-conditioned Amortized Inference for natural language generation from feedback",
)


@register(
    BRAIN,
    family="preference",
    summary="Match the reward-conditioned posterior of the starting policy by self-normalised importance sampling.",
    when="Several scored replies a prompt, and rewards whose size matters, not only their order.",
    trial={"n": 4, "sync": 1},
)
def brain(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    gamma: Annotated[float, Option("Temperature of the reward in the posterior.", above=0)] = 1.0,
    sync: Annotated[int, Option("Steps after which the proposal takes the policy's weights.", at_least=1)] = 10,
    reward_model: opt.RewardModel = None,
) -> Method:
    """BRAIn.

    y_1..y_n ~ q' (an earlier policy);  a = softmax(log ref + r/gamma - log q'), held;  b = softmax(log pi - log q')
    L = KL(a || b) = sum a log(a / b),  mean over prompts;  its gradient is -sum (a_i - b_i) grad log pi(y_i|x)

    Two replies, q' = ref and a certain reward are DPO with beta = 1. n = 8 is that of the authors' example; gamma and
    how often the proposal is renewed were not available.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, who="past"),
        score=score.scoring(task, reward_model, author="past"),
        select=select.whole_lists(),
        credit=chain(credit.ref(), credit.behaviour("past"), credit.shared("reward", "psi")),
        learn=learn.Learn(lists.posterior(gamma, on="past")),
        models=roles(ref=frozen("policy"), past=snapshot("policy", sync), **score.rm_role(reward_model)),
        lr_share=0.1,
    )
