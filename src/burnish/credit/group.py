"""Advantages relative to a group: every token of a reply gets its reply's advantage."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable
from functools import lru_cache

import torch

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace

Peers = Callable[[Trace, Group], Hashable]


@supplies("stream:adv")
def group_relative(*, std: bool = True, eps: float = 1e-6, score: str = "reward", peers: Peers | None = None) -> Part:
    """A_i = (r_i - mean r) / (std r + eps), over the traces of a group; without the division where std is False.

    GRPO (arXiv 2402.03300) divides by the sample standard deviation (n - 1); Dr. GRPO (arXiv 2503.20783) does not
    divide. `peers` gives each trace a key within its group (seat, depth, ...): only traces of one key are compared.
    A group of one, or in which all score the same, has advantage 0.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        flat = 0
        for group in groups:
            for traces in _parties(group, peers):
                rewards = [trace.scores[score] for trace in traces]
                mean = sum(rewards) / len(rewards)
                spread = _spread(tuple(sorted(rewards)))
                for trace, reward in zip(traces, rewards, strict=True):
                    advantage = (reward - mean) / (spread + eps) if std else reward - mean
                    trace.streams["adv"] = torch.full((len(trace),), advantage if spread else 0.0)
                flat += spread == 0
        step.notes.add("zero_variance_groups", flat, len(groups))
        return groups

    return Part(
        name=f"group_relative({'std' if std else 'mean only'})",
        call=call,
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({"stream:adv"}),
    )


@lru_cache(maxsize=4096)
def _spread(rewards: tuple[float, ...]) -> float:
    """Their standard deviation, in exact arithmetic, which takes a while; groups of right and wrong replies are often
    alike.
    """
    return statistics.stdev(rewards) if len(rewards) > 1 else 0.0


def _parties(group: Group, peers: Peers | None) -> list[list[Trace]]:
    if peers is None:
        return [group.traces]
    parties: dict[Hashable, list[Trace]] = {}
    for trace in group.traces:
        parties.setdefault(peers(trace, group), []).append(trace)
    return list(parties.values())
