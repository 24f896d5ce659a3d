"""Credit to episodes that share turns: every copy trained on, advantages of shared turns, one turn of two episodes."""

from __future__ import annotations

import torch

from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace


@supplies("claim:*")
def claim_copies(term: str, *authors: str) -> Part:
    """The term trains on these authors' tokens in every trace: a turn that k traces share counts k times."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.streams[f"claim:{term}"] = trace.by(*authors)

    return per_trace(
        write,
        name=f"claim_copies({term})",
        reads=frozenset(f"tokens:{author}" for author in authors),
        writes=frozenset({f"claim:{term}"}),
    )


def shared_mean(stream: str = "adv") -> Part:
    """On a turn that several traces of a group share, the mean of their values (ARPO's hard advantage)."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            places: dict[int, list[tuple[Trace, int, int]]] = {}
            for trace in group.traces:
                for turn, start, end in trace.spans():
                    places.setdefault(id(turn), []).append((trace, start, end))
            for shared in (found for found in places.values() if len(found) > 1):
                mean = torch.stack([trace.streams[stream][start:end] for trace, start, end in shared]).mean(0)
                for trace, start, end in shared:
                    trace.streams[stream][start:end] = mean
        return groups

    name = frozenset({f"stream:{stream}"})
    return Part(name=f"shared_mean({stream})", call=call, reads=name, updates=name)


@supplies("claim:*")
def claim_where_they_part(term: str) -> Part:
    """The term trains on the turn at which two episodes part (note "turn") and on nothing else."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        mask = torch.zeros(len(trace), dtype=torch.bool)
        mask[slice(*_parting(trace))] = True
        trace.streams[f"claim:{term}"] = mask

    return per_trace(
        write,
        name=f"claim_where_they_part({term})",
        reads=frozenset({"tag:branched"}),
        writes=frozenset({f"claim:{term}"}),
    )


@supplies("stream:reward")
def reward_where_they_part(score: str = "reward") -> Part:
    """Stream "reward": the episode's score at the last token of the turn at which two episodes part, else 0 (REFUEL,
    arXiv 2410.04612). Its sum over that turn is the score.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.streams["reward"] = torch.zeros(len(trace))
        trace.streams["reward"][_parting(trace)[1] - 1] = trace.scores[score]

    return per_trace(
        write,
        name="reward_where_they_part",
        reads=frozenset({"tag:branched", f"score:{score}"}),
        writes=frozenset({"stream:reward"}),
    )


def _parting(trace: Trace) -> tuple[int, int]:
    start = sum(len(turn) for turn in trace.turns[: trace.note["turn"]])
    return start, start + len(trace.turns[trace.note["turn"]])
