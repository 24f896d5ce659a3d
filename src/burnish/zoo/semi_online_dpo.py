"""Bridging Offline and Online Reinforcement Learning for LLMs (arXiv 2506.21495)."""

from __future__ import annotations

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.roles import snapshot
from burnish.method import Method, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

SEMI_ONLINE_DPO = Paper("semi-online-dpo", "2506.21495", "Bridging Offline and Online Reinforcement Learning for LLMs")

ROUND = {"n": 4, "sync": 1}


@register(
    SEMI_ONLINE_DPO,
    family="preference",
    summary="DPO whose sampler takes the policy's weights every few steps: between offline and online.",
    when="Online DPO, where sampling from weights that are a few steps old is cheaper.",
    trial=ROUND,
)
def semi_online_dpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    beta: opt.Beta = 0.1,
    sync: opt.Sync = 10,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Semi-online DPO.

    y_1..y_n ~ the policy of up to `sync` steps ago;  w, l = the best and the worst
    L = -log s( beta [lr_w - lr_l] ),  lr = log pi(y|x) - log ref(y|x),  mean over pairs

    sync = 1 is online DPO, sync beyond the run is offline DPO on the starting policy's replies. The reference is the
    starting policy. The paper finds intervals between these two as good as online; sync = 10 is ours.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, who="past"),
        score=score.scoring(task, reward_model, author="past"),
        select=select.best_vs_worst(),
        credit=credit.ref(),
        learn=learn.Learn(learn.dpo(beta, on="past")),
        models=roles(ref=frozen("policy"), past=snapshot("policy", sync), **score.rm_role(reward_model)),
        lr_share=0.1,
    )
