"""On-Policy RL with Optimal Reward Baseline (arXiv 2505.23585)."""

from __future__ import annotations

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

OPO = Paper("opo", "2505.23585", "On-Policy RL with Optimal Reward Baseline")


@register(
    OPO,
    family="policy",
    summary="Exact on-policy gradients with the length-weighted baseline of least variance.",
    when="Strictly on-policy runs in which replies differ much in length.",
)
def opo(task: draw.Source, *, n: opt.GroupSize = 8, reward_model: opt.RewardModel = None) -> Method:
    """On-policy RL with optimal baseline.

    b = sum l_i r_i / sum l_i over the replies to the prompt, l_i their lengths;   A_i = r_i - b
    L = mean over tokens of -A_i log pi(y_t | .)

    Strictly on-policy: one update a batch, no ratio, no clip, no KL, no entropy bonus, no std.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        credit=credit.over_length_weighted_mean(),
        learn=learn.Learn(learn.pg_reinforce(norm=learn.token_mean)),
        models=roles(**score.rm_role(reward_model)),
    )
