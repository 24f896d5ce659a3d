"""Values from sampled continuations: of segments along a reply, and of the nodes of a tree of replies.

A reply with probes has note["cuts"], the positions (in the trace) at which it was continued afresh; each probe has
note["of"], the index of its reply, and note["at"], the position. V(cut) is the mean score of the probes from there.
"""

from __future__ import annotations

from collections import defaultdict

import torch

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace, Turn


def cut_values(group: Group, score: str) -> dict[tuple[int, int], float]:
    """(reply, position) -> mean score of the continuations from there."""
    found: dict[tuple[int, int], list[float]] = defaultdict(list)
    for trace in group.traces:
        if "probe" in trace.tags:
            found[trace.note["of"], trace.note["at"]].append(trace.scores[score])
    return {where: sum(scores) / len(scores) for where, scores in found.items()}


@supplies("stream:adv")
def segment_advantages(score: str = "reward") -> Part:
    """A = V(next cut) - V(own cut) for the tokens from one cut to the next (SPO-chain, arXiv 2505.23564).

    After the last cut, V(next) is the reply's own score. Tokens before the first cut have advantage 0, probes have
    none.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            values = cut_values(group, score)
            for trace in group.traces:
                trace.streams["adv"] = torch.full((len(trace),), 0.0 if "cuts" in trace.note else float("nan"))
                cuts = trace.note.get("cuts", [])
                known = [*(values[trace.index, at] for at in cuts), trace.scores[score]]
                for k, (start, end) in enumerate(zip(cuts, [*cuts, len(trace)][1:], strict=True)):
                    trace.streams["adv"][start:end] = known[k + 1] - known[k]
        return groups

    return Part(
        name="segment_advantages",
        call=call,
        reads=frozenset({f"score:{score}", "tag:probe"}),
        writes=frozenset({"stream:adv"}),
    )


@supplies("stream:rate")
def success_rates(score: str = "reward", stream: str = "rate") -> Part:
    """At the token after each cut: the mean score of the continuations from the cut; nan elsewhere."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            values = cut_values(group, score)
            for trace in group.traces:
                trace.streams[stream] = torch.full((len(trace),), float("nan"))
                for at in trace.note.get("cuts", []):
                    trace.streams[stream][at] = values[trace.index, at]
        return groups

    return Part(
        name=f"success_rates({stream})",
        call=call,
        reads=frozenset({f"score:{score}", "tag:probe"}),
        writes=frozenset({f"stream:{stream}"}),
    )


@supplies("stream:adv")
def tree_advantages(score: str = "reward") -> Part:
    """A = V(node) - V(parent) for the tokens of every turn of a tree of replies (SPO-tree, arXiv 2505.23564).

    V of a reply that ended is its score; V of any other node is the mean V of its children.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            values = node_values(group.traces, score)
            for trace in group.traces:
                trace.streams["adv"] = torch.full((len(trace),), float("nan"))
                for turn, start, end in trace.spans():
                    if turn.parent is not None:
                        trace.streams["adv"][start:end] = values[id(turn)] - values[id(turn.parent)]
        return groups

    return Part(
        name="tree_advantages",
        call=call,
        reads=frozenset({f"score:{score}", "tag:tree"}),
        writes=frozenset({"stream:adv"}),
    )


def node_values(traces: list[Trace], score: str) -> dict[int, float]:
    """id of a turn -> its value: the score of the reply that it ends, or the mean value of its children."""
    values: dict[int, float] = {id(trace.turns[-1]): trace.scores[score] for trace in traces}
    deepest_first = sorted(
        {(depth, id(turn)): turn for trace in traces for depth, turn in enumerate(trace.turns)}.items(),
        key=lambda item: -item[0][0],
    )
    children: dict[int, dict[int, Turn]] = defaultdict(dict)
    for _, turn in deepest_first:
        if turn.parent is not None:
            children[id(turn.parent)][id(turn)] = turn
    for _, turn in deepest_first:
        mine = children[id(turn)]
        if mine:
            values[id(turn)] = sum(values[child] for child in mine) / len(mine)
    return values
