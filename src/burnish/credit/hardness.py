"""Advantages weighed by how hard a prompt is for the policy."""

from __future__ import annotations

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.credit.baselines import spread


@supplies("stream:adv")
def by_hardness(alpha: float = -0.256, offset: float = 1.256, *, score: str = "reward") -> Part:
    """Policy-specific hardness weighting (Confucius3-Math, arXiv 2506.18330, Eq. 2 and 3).

        R_i = 2 score_i - 1,   mu = mean R over the replies to the prompt,   A_i = (R_i - mu) (alpha mu + offset)

    With the paper's constants a prompt that is always solved (mu = 1) weighs 1, one that never is (mu = -1) 1.512.
    alpha = 0, offset = 1 is Dr. GRPO's advantage for rewards of -1 and 1.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            rewards = [2 * trace.scores[score] - 1 for trace in group.traces]
            mean = sum(rewards) / len(rewards)
            for trace, reward in zip(group.traces, rewards, strict=True):
                spread(trace, (reward - mean) * (alpha * mean + offset))
        return groups

    return Part(
        name=f"by_hardness({alpha:g}, {offset:g})",
        call=call,
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({"stream:adv"}),
    )
