"""All rules that make comparisons: pairs (better, worse) and ranked lists (best first).

A rule is a pure function of a group's scores (`Rule`), and `scored_pairs` makes a part of it. A tie is no preference:
whatever a rule proposes, replies with equal scores never become a pair, and a list never holds two of them. Groups that
are left with no comparison are dropped.

Losses that regress differences of scores (REBEL, CoPG, P3O) need ties as well: `every_contrast` is for them. Replies
that are good or bad by themselves need no comparison: credit.label writes their labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

from burnish.core.parts import Part, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group

Rule = Callable[[Sequence[float]], Iterable[tuple[int, int]]]  # scores of a group -> pairs (better, worse) of indices


def ranking(scores: Sequence[float]) -> list[int]:
    """The indices, best score first; of equal scores the earlier sample first."""
    return sorted(range(len(scores)), key=lambda i: (-scores[i], i))


def scored_pairs(rule: Rule, *, name: str, score: str = "reward") -> Part:
    """The pairs that a rule proposes for each group, ties left out; replies that are in no pair are dropped.

    name  of the part, in errors and in the run store
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = []
        for group in groups:
            scores = [trace.scores[score] for trace in group.traces]
            pairs = [(a, b) for a, b in rule(scores) if scores[a] > scores[b]]
            place = {i: k for k, i in enumerate(dict.fromkeys(i for pair in pairs for i in pair))}
            if pairs:
                group.traces = [group.traces[i] for i in place]
                group.pairs = [(place[a], place[b]) for a, b in pairs]
                kept.append(group)
        step.notes.add("dropped/no_preference", len(groups) - len(kept), len(groups))
        return kept

    return Part(name=name, call=call, reads=frozenset({f"score:{score}"}), writes=frozenset({"pairs"}))


@supplies("pairs")
def best_vs_worst(score: str = "reward") -> Part:
    """One pair a group: its best-scored trace against its worst; the others, and groups where all score
    the same, go.
    """

    def rule(scores: Sequence[float]) -> list[tuple[int, int]]:
        ranked = ranking(scores)
        return [(ranked[0], ranked[-1])]

    return scored_pairs(rule, name="best_vs_worst", score=score)


@supplies("pairs")
def every_pair(score: str = "reward") -> Part:
    """Every pair of a group's traces that score differently, the better first."""
    return scored_pairs(lambda scores: combinations(ranking(scores), 2), name="every_pair", score=score)


@supplies("pairs")
def every_contrast(score: str = "reward") -> Part:
    """All pairs of a group's traces, the better-scored first, ties included: for losses that read the scores
    themselves.

    Groups of one trace give no pair and are dropped.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            group.pairs = list(combinations(ranking([trace.scores[score] for trace in group.traces]), 2))
        return [group for group in groups if group.pairs]

    return Part(name="every_contrast", call=call, reads=frozenset({f"score:{score}"}), writes=frozenset({"pairs"}))


@supplies("pairs")
def given_pairs(better: str = "chosen", worse: str = "rejected") -> Part:
    """The pairs that came with the data: every trace with the tag `better` over every trace with the tag `worse`.

    Two traces with the same tokens are a tie. Traces without either tag stay, in no pair (a demonstration beside them).
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            said = [tuple(trace.tokens.tolist()) for trace in group.traces]
            group.pairs = [
                (a, b)
                for a, first in enumerate(group.traces)
                for b, second in enumerate(group.traces)
                if better in first.tags and worse in second.tags and said[a] != said[b]
            ]
        kept = [group for group in groups if group.pairs]
        step.notes.add("dropped/no_preference", len(groups) - len(kept), len(groups))
        return kept

    return Part(
        name=f"given_pairs({better}, {worse})",
        call=call,
        reads=names("tag", (better, worse)),
        writes=frozenset({"pairs"}),
    )


@supplies("lists")
def ranked(score: str = "reward") -> Part:
    """One list a group, best first; of traces with equal scores only the earliest is in it. Groups without two are
    dropped.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = []
        for group in groups:
            scores = [trace.scores[score] for trace in group.traces]
            first = {scores[i]: i for i in reversed(ranking(scores))}
            if len(first) > 1:
                group.traces = [group.traces[first[value]] for value in sorted(first, reverse=True)]
                group.lists = [tuple(range(len(group.traces)))]
                kept.append(group)
        step.notes.add("dropped/no_preference", len(groups) - len(kept), len(groups))
        return kept

    return Part(name="ranked", call=call, reads=frozenset({f"score:{score}"}), writes=frozenset({"lists"}))
