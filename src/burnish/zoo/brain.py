"""BRAIn: Bayesian Reward-conditioned Amortized Inference for natural language generation from feedback (arXiv
2402.02479).
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.core.roles import snapshot
from burnish.learn.maths.preference import Replies
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import list_term
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

BRAIN = Paper(
    "brain",
    "2402.02479",
    "BRAIn: Bayesian Reward-conditioned Amortized Inference for natural language generation from feedback",
)


def brain_kl(logp: Tensor, ref: Tensor, proposal: Tensor, rewards: Tensor, gamma: float) -> Tensor:
    """BRAIn (Pandey et al., arXiv 2402.02479): KL(a || b) over n samples of a proposal q'.

        a = softmax(log p_sft + r / gamma - log q'), held;   b = softmax(log pi - log q')

    Its gradient is -sum_i (a_i - b_i) grad log pi(y_i): self-normalised importance sampling with a self-normalised
    baseline. n = 2 with q' = p_sft and a = (1, 0) is DPO with beta = 1.
    """
    target = torch.log_softmax(ref + rewards.to(ref) / gamma - proposal, 0).detach()
    return (target.exp() * (target - torch.log_softmax(logp - proposal, 0))).sum()


def posterior(gamma: float, *, on: Authors = "policy") -> Term:
    """BRAIn on the lists: rewards in stream "psi", the proposal's log-probs in stream "old"."""

    def loss(one: Replies, _: float) -> Tensor:
        return brain_kl(one.logp, one.logp.detach() - one.logratio.detach(), one["old"], one["psi"], gamma)

    return list_term(loss, streams=("old",), marks=("psi",), on=on)


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
        learn=learn.Learn(posterior(gamma, on="past")),
        models=roles(ref=frozen("policy"), past=snapshot("policy", sync), **score.rm_role(reward_model)),
        lr_share=0.1,
    )
