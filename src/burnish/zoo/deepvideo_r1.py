"""DeepVideo-R1: Video Reinforcement Fine-Tuning via Difficulty-aware Regressive GRPO (arXiv 2506.07464)."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.learn.terms.rows import row_mean, row_sum
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

DEEPVIDEO_R1 = Paper(
    "deepvideo-r1-reg-grpo",
    "2506.07464",
    "DeepVideo-R1: Video Reinforcement Fine-Tuning via Difficulty-aware Regressive GRPO",
)


@supplies("stream:gain")
def gains() -> Part:
    """The advantages as stream "gain": a target that log-ratios are fitted to, not a factor of a policy gradient."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.streams["gain"] = trace.streams["adv"]

    return per_trace(write, name="gains", reads=frozenset({"stream:adv"}), writes=frozenset({"stream:gain"}))


def regress_group(tau: float) -> learn.Term:
    """mean over a group's replies of (tau (rho_i - mean rho) - A_i)^2, rho the log-ratio to "old" over a reply."""

    def loss(live: learn.Live) -> Tensor:
        ratio, advantage = row_sum(live, live.logp - live.old), row_mean(live, live.gain).to(live.logp.dtype)
        groups = int(live.group.max()) + 1 if len(live.group) else 0
        losses = []
        for group in range(groups):
            inside = live.group == group
            centred = ratio[inside] - ratio[inside].mean()
            losses.append((tau * centred - advantage[inside]).square().mean())
        return torch.stack(losses)

    return learn.Term(
        name="group", unit="group", loss=loss, live=("logp",), streams=("gain", "old"), norm=learn.unit_mean
    )


@register(
    DEEPVIDEO_R1,
    family="policy",
    summary="GRPO as a regression: the centred log-ratios of a group are fitted to its advantages, without a clip.",
    when="Clipping takes gradients away, and you have several replies a prompt.",
    example="burnish train reg_grpo --model tiny-omni --task sprites:1",
    trial={"n": 3},
)
def reg_grpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    tau: Annotated[float, Option("Scale of the log-ratio.", above=0)] = 1.0,
    updates: opt.Updates = 1,
) -> Method:
    """L = mean over replies of ( tau [log pi(y_i)/pi_old(y_i) - mean over the group] - A_i )^2
    A_i = (r_i - mean r) / std r

    At the policy that sampled the gradient is -2 tau A_i grad log pi(y_i): REINFORCE. From the abstract (A). The paper
    divides the log-ratios by their spread in the group, which is 0 there; a fixed scale tau takes its place (R). With
    advantages that are not divided by their spread it is (n - 1) / (2 n) of `rebel` over all pairs of a group, tau = 1
    / eta. The paper's other half, noise on easy videos and hints on hard ones, is not here.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.group_relative(), gains(), credit.behaviour()),
        learn=learn.Learn(regress_group(tau), updates=updates),
        models=roles(),
    )
