"""The reward of agreeing with the majority."""

from __future__ import annotations

from burnish import papers, score
from burnish.rewards import MEASURED, Scorer, register_reward
from burnish.tasks.source import Source


@register_reward(
    papers.SERL,
    summary="1 for a reply whose final answer agrees with most replies to its prompt, else 0: no label is read.",
    when="Prompts without answers, and a policy that is often right.",
    example="burnish train grpo --reward majority",
)
def majority(task: Source) -> Scorer:
    """1 if the answer is in the largest class: the row of the equality matrix of the group's answers with most hits."""
    return Scorer(part=score.majority(score=f"{MEASURED}majority"))
