"""Llama-Nemotron: Efficient Reasoning Models (arXiv 2505.00949)."""

from __future__ import annotations

from typing import Annotated

import torch.nn.functional as F
from torch import Tensor

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.schedules import Schedule
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import pair_term
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, papers, register


def reward_aware(margin: Tensor, gap: Tensor) -> Tensor:
    """KL between the preferences that a reward gap and a policy's margin imply, per pair (RPO, arXiv 2406.11704).

        D[a || b] = s(b) log(s(b) / s(a)) + (1 - s(b)) log((1 - s(b)) / (1 - s(a))),   a = margin, b = gap, s = sigmoid

    0 where the margin equals the gap; for a large gap DPO's -log s(a).
    """
    target = gap.sigmoid()
    better = target * (F.logsigmoid(gap) - F.logsigmoid(margin))
    return better + (1 - target) * (F.logsigmoid(-gap) - F.logsigmoid(-margin))


def reward_aware_pairs(beta: Schedule, eta: float, *, on: Authors = "policy", name: str = "reply") -> Term:
    """RPO: beta times the difference of log-ratios learns eta times the difference of stream "reward" (one number a
    reply).
    """
    return pair_term(
        lambda w, r, beta: reward_aware(
            beta * (w.logratio - r.logratio), (eta * (w["reward"] - r["reward"])).to(w.logratio)
        ),
        beta=beta,
        marks=("reward",),
        on=on,
        name=name,
    )


@register(
    papers.LLAMA_NEMOTRON,
    family="preference",
    summary="Online DPO whose margin should be as large as the difference of the rewards.",
    when="A reward model gives scores whose size means something, and DPO pushes small differences too far.",
)
def reward_aware_po(
    task: draw.Source,
    *,
    n: opt.GroupSize = 2,
    beta: opt.Beta = 0.1,
    eta: Annotated[float, Option("What a point of reward counts.", above=0)] = 3.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Online reward-aware preference optimisation, the RLHF of Llama-Nemotron (section 6.2; RPO: arXiv 2406.11704).

    L = D[ beta (log pi(y_w)/ref(y_w) - log pi(y_l)/ref(y_l)) || eta (r_w - r_l) ],  mean over pairs
    D[a || b] = s(b) log(s(b) / s(a)) + (1 - s(b)) log((1 - s(b)) / (1 - s(a)))

    y_w, y_l: the best and the worst of n replies of the policy. A large eta is online DPO. eta = 3 is the paper's; its
    beta of 1e-5 lets the policy go far from the reference, and 0.1 is ours (LN-Nano: 0.03). n is not printed.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        select=select.best_vs_worst(),
        credit=chain(credit.ref(), credit.shared("reward", "reward")),
        learn=learn.Learn(reward_aware_pairs(beta, eta)),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )
