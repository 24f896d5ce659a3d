"""The baseline of answers that are forced at the state from which replies go on."""

from __future__ import annotations

import torch

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group


def progress_advantages(rewards: list[float], forced: list[float], alpha: float) -> list[float]:
    """A_i = r_i - (1 - alpha) mean r - alpha J, J the mean reward of the forced answers (arXiv 2503.07572).

    alpha = 1: r_i - J, the progress that continuation i makes over answering at once. alpha = 0: r_i less the mean of
    the group, as GRPO without the division.
    """
    mean, reached = sum(rewards) / len(rewards), sum(forced) / len(forced)
    return [reward - (1 - alpha) * mean - alpha * reached for reward in rewards]


@supplies("stream:adv")
def over_forced(alpha: float) -> Part:
    """progress_advantages on all tokens of a continuation; forced answers have none."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            samples = [trace for trace in group.traces if "forced" not in trace.tags]
            forced = [trace.scores["reward"] for trace in group.traces if "forced" in trace.tags]
            for trace in group.traces:
                trace.streams["adv"] = torch.full((len(trace),), float("nan"))
            if not samples or not forced:
                continue
            rewards = [trace.scores["reward"] for trace in samples]
            for trace, advantage in zip(samples, progress_advantages(rewards, forced, alpha), strict=True):
                trace.streams["adv"] = torch.full((len(trace),), advantage)
            step.notes.add("progress", sum(rewards) / len(rewards) - sum(forced) / len(forced))
        return groups

    return Part(
        name=f"over_forced({alpha:g})",
        call=call,
        reads=frozenset({"score:reward", "tag:forced", "tokens:forced"}),
        writes=frozenset({"stream:adv"}),
    )
