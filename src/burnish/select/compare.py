"""From scores to explicit comparisons."""

from __future__ import annotations

from burnish.nouns import Group
from burnish.parts import Part, supplies
from burnish.step import Step


@supplies("pairs")
def best_vs_worst(score: str = "reward") -> Part:
    """One pair a group: its best-scored trace against its worst; the others, and groups where all score the same, go."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = []
        for group in groups:
            ranked = sorted(range(len(group.traces)), key=lambda i: -group.traces[i].scores[score])
            best, worst = ranked[0], ranked[-1]
            if group.traces[best].scores[score] > group.traces[worst].scores[score]:
                group.traces, group.pairs = [group.traces[best], group.traces[worst]], [(0, 1)]
                kept.append(group)
        step.notes.add("dropped/no_preference", len(groups) - len(kept), len(groups))
        return kept

    return Part(name="best_vs_worst", call=call, reads=frozenset({f"score:{score}"}), writes=frozenset({"pairs"}))


def keep_best(k: int = 1, score: str = "reward") -> Part:
    """Only the k best-scored traces of every group; ties go to the earlier sample."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            step.notes.add(
                "score/before_selection", sum(trace.scores[score] for trace in group.traces), len(group.traces)
            )
            ranked = sorted(range(len(group.traces)), key=lambda i: (-group.traces[i].scores[score], i))
            group.traces = [group.traces[i] for i in ranked[:k]]
            step.notes.add("score/selected", sum(trace.scores[score] for trace in group.traces), len(group.traces))
        return groups

    return Part(
        name=f"keep_best({k})", call=call, reads=frozenset({f"score:{score}"}), updates=frozenset({"tokens:policy"})
    )


def above(threshold: float, score: str = "reward") -> Part:
    """Only traces that score more than the threshold; groups left with none are dropped."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            kept = [trace for trace in group.traces if trace.scores[score] > threshold]
            step.notes.add("dropped/below_threshold", len(group.traces) - len(kept), len(group.traces))
            group.traces = kept
        return [group for group in groups if group.traces]

    return Part(
        name=f"above({threshold:g})",
        call=call,
        reads=frozenset({f"score:{score}"}),
        updates=frozenset({"tokens:policy"}),
    )
