"""What CGPO learns from: replies that satisfy every judge, and those that do not (arXiv 2409.20370)."""

from __future__ import annotations

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace


def _reward(trace: Trace) -> float:
    return trace.scores["reward"]


@supplies("pairs")
def satisfied_vs_violating() -> Part:
    """One pair a group: the best-scored reply that satisfies, against the worst that violates, or the worst of all.

    A group in which nothing satisfies, or without a second reply that is worse, goes. (Eq. 13)
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = []
        for group in groups:
            good = [trace for trace in group.traces if trace.scores["satisfied"]]
            bad = [trace for trace in group.traces if not trace.scores["satisfied"]]
            if not good:
                continue
            best = max(good, key=_reward)
            worst = min(bad or good, key=_reward)
            if bad or _reward(worst) < _reward(best):
                group.traces, group.pairs = [best, worst], [(0, 1)]
                kept.append(group)
        step.notes.add("dropped/no_preference", len(groups) - len(kept), len(groups))
        return kept

    return Part(
        name="satisfied_vs_violating",
        call=call,
        reads=frozenset({"score:reward", "score:satisfied"}),
        writes=frozenset({"pairs"}),
    )


def best_satisfying(most: float, tag: str = "baseline") -> Part:
    """The best-scored reply that satisfies with log_ratio <= most; else the tagged baseline, if that satisfies; else
    the group goes.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = []
        for group in groups:
            good = [trace for trace in group.traces if trace.scores["satisfied"]]
            near = [t for t in good if tag not in t.tags and t.scores["log_ratio"] <= most]
            chosen = max(near, key=_reward) if near else next((t for t in good if tag in t.tags), None)
            if chosen is not None:
                group.traces = [chosen]
                kept.append(group)
        step.notes.add("dropped/nothing_satisfies", len(groups) - len(kept), len(groups))
        return kept

    return Part(
        name=f"best_satisfying({most:g})",
        call=call,
        reads=frozenset({"score:reward", "score:satisfied", "score:log_ratio", f"tag:{tag}"}),
    )
