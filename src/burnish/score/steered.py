"""The reward of a reply under control words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from burnish.core.parts import Part, per_trace, supplies
from burnish.core.scorer import named_reward
from burnish.core.step import Step
from burnish.core.types import Group, Trace


def steered_sum(rewards: Mapping[str, float], levels: Mapping[str, float]) -> float:
    """sum_d level_d r_d / sum_d |level_d|; the mean of the rewards where all levels are 0."""
    scale = sum(abs(levels[name]) for name in rewards)
    if not scale:
        return sum(rewards.values()) / max(1, len(rewards))
    return sum(levels[name] * value for name, value in rewards.items()) / scale


@supplies("score:steered")
def steered_reward(names: Sequence[str]) -> Part:
    """scores["steered"] = the rewards weighed by the levels of the control words (`rollout.steered`)."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        found = {name: named_reward(trace, name) for name in names}
        trace.scores["steered"] = steered_sum(found, trace.note["steer"])

    return per_trace(
        write,
        name=f"steered_reward({', '.join(names)})",
        reads=frozenset({"score:reward", "tag:steered"}),
        writes=frozenset({"score:steered"}),
    )
