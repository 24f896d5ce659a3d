"""What a reply's score is compared with: the batch, the past, its siblings, the greedy reply. No critic anywhere.

Every part writes stream "adv": one number a reply, on all its tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from burnish.core.parts import Part, Stateful, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace


class Memory(Stateful, Protocol):
    """A baseline that remembers: hears the scores of a batch, and says what to compare them with."""

    def heard(self, scores: list[float]) -> float: ...


class RunningMean:
    """b <- decay b + (1 - decay) mean r, from 0. A batch is compared with b as it was before it (Williams 1992)."""

    def __init__(self, name: str, decay: float) -> None:
        if not 0 <= decay < 1:
            raise ValueError(
                f"decay is {decay}; a running mean keeps a share of at least 0 and less than 1 of its past"
            )
        self.name, self.decay, self.value = name, decay, 0.0

    def heard(self, scores: list[float]) -> float:
        before = self.value
        if scores:
            self.value = self.decay * before + (1 - self.decay) * sum(scores) / len(scores)
        return before

    def state_dict(self) -> dict[str, float]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.value = float(state["value"])


@supplies("stream:adv")
def over_batch_mean(*, score: str = "reward") -> Part:
    """A_i = r_i - mean r over all replies of the batch."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        mean = sum(trace.scores[score] for trace in traces) / max(1, len(traces))
        for trace in traces:
            spread(trace, trace.scores[score] - mean)
        step.notes.add("baseline", mean)
        return groups

    return Part(
        name="over_batch_mean", call=call, reads=frozenset({f"score:{score}"}), writes=frozenset({"stream:adv"})
    )


def over_memory(memory: Memory, *, score: str = "reward") -> Part:
    """A_i = r_i - b, where b is what the memory says (a RunningMean, a RewardQueue)."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        baseline = memory.heard([trace.scores[score] for trace in traces])
        for trace in traces:
            spread(trace, trace.scores[score] - baseline)
        step.notes.add("baseline", baseline)
        return groups

    return Part(
        name=f"over_memory({memory.name})",
        call=call,
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({"stream:adv"}),
        state=(memory,),
    )


@supplies("stream:adv")
def leave_one_out(*, score: str = "reward") -> Part:
    """A_i = r_i - mean of the other replies to the prompt = n / (n - 1) (r_i - mean r); 0 in a group of one (RLOO)."""

    def advantages(traces: list[Trace], rewards: list[float]) -> list[float]:
        n, mean = len(rewards), sum(rewards) / len(rewards)
        return [n / (n - 1) * (r - mean) if n > 1 else 0.0 for r in rewards]

    return group_advantage("leave_one_out", score, advantages)


@supplies("stream:adv")
def over_greedy(*, score: str = "reward", tag: str = "greedy", limit: float = 5.0) -> Part:
    """A_i = clip(r_i - r_greedy, -limit, limit): the greedy reply to the same prompt is the baseline (ReMax).

    The tagged reply itself gets no advantage: it is not a sample of the policy, and no term may claim it.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            baseline = next(trace for trace in group.traces if tag in trace.tags).scores[score]
            step.notes.add("baseline", baseline)
            for trace in group.traces:
                advantage = max(-limit, min(limit, trace.scores[score] - baseline))
                spread(trace, float("nan") if tag in trace.tags else advantage)
        return groups

    return Part(
        name=f"over_greedy({tag})",
        call=call,
        reads=frozenset({f"score:{score}", f"tag:{tag}"}),
        writes=frozenset({"stream:adv"}),
    )


def spread(trace: Trace, value: float, stream: str = "adv") -> None:
    """One number, on all tokens of the trace."""
    trace.streams[stream] = torch.full((len(trace),), float(value))


def group_advantage(
    name: str, score: str, advantages: Callable[[list[Trace], list[float]], list[float]], *reads: str
) -> Part:
    """A part that gives each reply advantages(traces of its group, their scores)."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            rewards = [trace.scores[score] for trace in group.traces]
            for trace, advantage in zip(group.traces, advantages(group.traces, rewards), strict=True):
                spread(trace, advantage)
        return groups

    return Part(name=name, call=call, reads=frozenset({f"score:{score}", *reads}), writes=frozenset({"stream:adv"}))
