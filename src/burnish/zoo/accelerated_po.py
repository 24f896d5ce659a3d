"""Accelerated Preference Optimization for Large Language Model Alignment (arXiv 2410.06293).

Weights that go beyond what was learned: Nesterov's extrapolation between rounds.
"""

from __future__ import annotations

from typing import Annotated

import torch

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import Publish
from burnish.core.roles import snapshot
from burnish.core.step import Step
from burnish.method import Method, Option, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

ACCELERATED_PO = Paper(
    "accelerated-po", "2410.06293", "Accelerated Preference Optimization for Large Language Model Alignment"
)


def extrapolated(alpha: float, *, trained: str = "policy", last: str = "last") -> Publish:
    """At the end of a round w <- w_hat + alpha (w_hat - w_hat_last), w_hat the weights that were learned.

    last  the snapshot that keeps w_hat of the round before; its period is the round. Followers of `trained` (a
    reference) that are due in the same step copy the extrapolated weights. alpha = 0 changes nothing. (arXiv
    2410.06293.)
    """

    @torch.no_grad()
    def call(moved: tuple[str, ...], step: Step) -> None:
        model, before = step.models[trained], step.models[last]
        if trained not in moved or not before.role.due(step.clock):
            step.models.publish(moved, step.clock, step.notes)
            return
        learned = {name: p.detach().clone() for name, p in model.module.named_parameters()}
        step.models.before_move()
        for name, p in before.module.named_parameters():
            target = dict(model.module.named_parameters())[name]
            target.add_(target - p.to(target.dtype), alpha=alpha)
        model.weights_moved()
        step.models.publish(moved, step.clock, step.notes)
        for name, p in before.module.named_parameters():
            p.copy_(learned[name])
        before.weights_moved()

    return Publish(
        name=f"extrapolated({alpha:g})", call=call, reads=frozenset({f"model:{trained}.logp", f"model:{last}.logp"})
    )


ROUND = {"n": 4, "sync": 1}


@register(
    ACCELERATED_PO,
    family="preference",
    summary="Iterative DPO with Nesterov's extrapolation of the weights after each round.",
    when="Iterative DPO, in fewer rounds.",
    trial=ROUND,
)
def accelerated_po(
    task: draw.Source,
    *,
    n: opt.GroupSize = 5,
    beta: opt.Beta = 0.1,
    alpha: Annotated[
        float, Option("How far weights go beyond what the round learned; 0 is iterative DPO.", at_least=0)
    ] = 0.3,
    sync: opt.Sync = 1 / 3,
    reward_model: opt.RewardModel = None,
) -> Method:
    """APO: accelerated preference optimisation, on DPO.

    in round t: L = -log s( beta [lr_w - lr_l] ),  lr = log pi(y|x) - log pi_t(y|x),  y_1..y_n ~ pi_t,  mean over pairs
    after it:   w_{t+1} = w^_{t+1} + alpha (w^_{t+1} - w^_t),  w^ the weights that rounds t + 1 and t learned

    The extrapolated policy is the next reference and sampler. In weights it is exact for log-linear policies; the paper
    writes it for distributions. alpha = 0 is iterative DPO. The paper's text was not available: alpha is ours.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, who="past"),
        score=score.scoring(task, reward_model, author="past"),
        select=select.best_vs_worst(),
        credit=credit.ref("past"),
        learn=learn.Learn(learn.dpo(beta, on="past")),
        publish=extrapolated(alpha),
        models=roles(past=snapshot("policy", sync), last=snapshot("policy", sync), **score.rm_role(reward_model)),
        lr_share=0.1,
    )
