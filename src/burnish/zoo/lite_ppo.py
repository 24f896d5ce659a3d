"""Part I: Tricks or Traps? A Deep Dive into RL for LLM Reasoning (arXiv 2508.08221)."""

from __future__ import annotations

import statistics

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.credit.baselines import spread
from burnish.method import Method, Sampling, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

LITE_PPO = Paper("lite-ppo", "2508.08221", "Part I: Tricks or Traps? A Deep Dive into RL for LLM Reasoning")


def group_mean_batch_std(*, score: str = "reward", eps: float = 1e-6) -> Part:
    """A_i = (r_i - mean of its group) / (std of all scores of the batch + eps) (Lite PPO, arXiv 2508.08221).

    The std is the sample standard deviation of the raw scores, not of the centred ones: prompts of different difficulty
    make it larger. A batch of one group: GRPO's advantage.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        scores = [trace.scores[score] for group in groups for trace in group.traces]
        std = statistics.stdev(scores) if len(scores) > 1 else 0.0
        for group in groups:
            mean = sum(trace.scores[score] for trace in group.traces) / len(group.traces)
            for trace in group.traces:
                spread(trace, (trace.scores[score] - mean) / (std + eps))
        return groups

    return Part(
        name="group_mean_batch_std", call=call, reads=frozenset({f"score:{score}"}), writes=frozenset({"stream:adv"})
    )


@register(
    LITE_PPO,
    family="policy",
    summary="Vanilla PPO clip with two tricks: group mean with batch std, and a token mean.",
    when="You want the fewest moving parts on top of PPO's clip, and your batches are large enough to have a spread.",
)
def lite_ppo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    updates: opt.Updates = 1,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Lite PPO: critic-free PPO with two tricks and no others.

    A_i = (r_i - mean r of the prompt's replies) / (std of all rewards of the batch + 1e-6)
    L = mean over all tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)

    std is the sample standard deviation of the raw rewards. No KL, no clip-higher, no overlong filter.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        credit=chain(group_mean_batch_std(), credit.behaviour()),
        learn=learn.Learn(learn.pg_clip(eps), updates=updates),
        models=roles(**score.rm_role(reward_model)),
        sampling=Sampling(0.99, top_k=100, top_p=0.99),
    )
