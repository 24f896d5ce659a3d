"""On-Policy RL with Optimal Reward Baseline (arXiv 2505.23585)."""

from __future__ import annotations

from burnish import draw, learn, rollout, score
from burnish.core.parts import Part
from burnish.core.types import Trace
from burnish.credit.baselines import group_advantage
from burnish.method import Method, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

OPO = Paper("opo", "2505.23585", "On-Policy RL with Optimal Reward Baseline")


def over_length_weighted_mean(*, score: str = "reward", author: str = "policy") -> Part:
    """A_i = r_i - b with b = sum l_i r_i / sum l_i over the group, l_i the tokens of reply i (OPO, arXiv 2505.23585).

    The baseline of least variance where |grad log pi(y)|^2 grows with the length of y. Equal lengths: the group's mean.
    A group of one has advantage 0.
    """

    def advantages(traces: list[Trace], rewards: list[float]) -> list[float]:
        lengths = [int(trace.by(author).sum()) for trace in traces]
        baseline = sum(n * r for n, r in zip(lengths, rewards, strict=True)) / max(1, sum(lengths))
        return [r - baseline for r in rewards]

    return group_advantage("over_length_weighted_mean", score, advantages, f"tokens:{author}")


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
        credit=over_length_weighted_mean(),
        learn=learn.Learn(learn.pg_reinforce(norm=learn.token_mean)),
        models=roles(**score.rm_role(reward_model)),
    )
