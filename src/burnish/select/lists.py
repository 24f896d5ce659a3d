"""Builders that turn scored replies into pairs and lists for particular methods; the general rules are in pairs.py."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from burnish.core import randomness
from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.select.pairs import ranking, scored_pairs

Diversity = Callable[[list[Trace], Step], list[float]]  # the replies of a group -> how unusual each is among them


@supplies("lists")
def whole_lists(score: str = "reward") -> Part:
    """One list a group: all its replies, best first, equal scores in the order of sampling.

    Groups of one are dropped.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            group.traces = [group.traces[i] for i in ranking([trace.scores[score] for trace in group.traces])]
            group.lists = [tuple(range(len(group.traces)))]
        return [group for group in groups if len(group.traces) > 1]

    return Part(name="whole_lists", call=call, reads=frozenset({f"score:{score}"}), writes=frozenset({"lists"}))


@supplies("lists", "tag:best")
def unequal_lists(score: str = "reward") -> Part:
    """`whole_lists` of the groups whose replies do not all score the same; the best reply gets the tag "best"."""
    every = whole_lists(score)

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = [group for group in groups if len({trace.scores[score] for trace in group.traces}) > 1]
        step.notes.add("dropped/no_preference", len(groups) - len(kept), len(groups))
        for group in every.call(kept, step):
            group.traces[0].tags |= {"best"}
        return kept

    return Part(
        name="unequal_lists", call=call, reads=frozenset({f"score:{score}"}), writes=frozenset({"lists", "tag:best"})
    )


def accepted(rewards: Sequence[float], beta: float, keep: int, dice: random.Random) -> list[int]:
    """The indices of `keep` replies by statistical rejection sampling (RSO, arXiv 2309.06657): about pi_ref e^(r/beta).

    Pass after pass over the replies that are left, reply i is accepted with chance e^((r_i - r_max)/beta), r_max the
    largest reward left at the start of the pass, until enough are. beta -> 0 takes the best, beta -> infinity the
    first.
    """
    left, chosen = list(range(len(rewards))), list[int]()
    while left and len(chosen) < keep:
        most = max(rewards[i] for i in left)
        taken: list[int] = []
        for i in left:
            if len(chosen) + len(taken) < keep and dice.random() < math.exp((rewards[i] - most) / beta):
                taken.append(i)
        chosen += taken
        left = [i for i in left if i not in taken]
    return chosen


@supplies("tag:accepted")
def keep_accepted(beta: float, keep: int, *, score: str = "reward") -> Part:
    """The replies that statistical rejection sampling accepts, in the order of acceptance, tagged "accepted"."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        clock = step.clock
        for group in groups:
            dice = randomness.rng(clock.seed, "accepted", clock.step, clock.tick, group.task.key)
            chosen = accepted([trace.scores[score] for trace in group.traces], beta, keep, dice)
            step.notes.add("accepted", len(chosen), len(group.traces))
            group.traces = [group.traces[i] for i in chosen]
            for trace in group.traces:
                trace.tags |= {"accepted"}
        return [group for group in groups if group.traces]

    return Part(
        name=f"keep_accepted({keep}, beta {beta:g})",
        call=call,
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({"tag:accepted"}),
    )


@supplies("pairs")
def first_round(*tags: str, score: str = "reward") -> Part:
    """Pairs of neighbours, (first, second), (third, fourth), ..., the better-scored preferred.

    It is the first round of a tournament.

    tags  what the replies must have been given before
    """

    def rule(scores: Sequence[float]) -> list[tuple[int, int]]:
        neighbours = [(i, i + 1) for i in range(0, len(scores) - 1, 2)]
        return [(a, b) if scores[a] > scores[b] else (b, a) for a, b in neighbours]

    made = scored_pairs(rule, name="first_round", score=score)
    return Part(
        name=made.name,
        call=made.call,
        reads=made.reads | frozenset(f"tag:{tag}" for tag in tags),
        writes=made.writes,
    )


def by_probability(traces: list[Trace], step: Step) -> list[float]:
    """-log pi(y | x), as recorded when the reply was sampled: the less likely, the more diverse."""
    return [-sum(float(turn.logp.sum()) for turn in trace.turns if turn.logp is not None) for trace in traces]


def diverse_pair(scores: Sequence[float], diversity: Sequence[float], rho: float) -> tuple[int, int]:
    """DivPO's pair (arXiv 2501.18101): (chosen, rejected).

    Of the replies within rho of the reward range below the best, the most diverse; of those within rho of it above the
    worst, the least diverse. rho = 0 compares the best with the worst; rho = 0.5 uses everything.
    """
    low, high = min(scores), max(scores)
    band = rho * (high - low)
    good = [i for i, r in enumerate(scores) if r >= high - band]
    bad = [i for i, r in enumerate(scores) if r <= low + band and r < high]
    return max(good, key=lambda i: (diversity[i], -i)), min(bad or [0], key=lambda i: (diversity[i], i))


@supplies("pairs")
def diverse_vs_usual(rho: float, diversity: Diversity, *, score: str = "reward") -> Part:
    """DivPO's pair of every group whose replies do not all score the same; the others are dropped."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = []
        for group in groups:
            scores = [trace.scores[score] for trace in group.traces]
            if len(set(scores)) < 2:
                continue
            a, b = diverse_pair(scores, diversity(group.traces, step), rho)
            if scores[a] > scores[b]:
                group.traces, group.pairs = [group.traces[a], group.traces[b]], [(0, 1)]
                kept.append(group)
        step.notes.add("dropped/no_preference", len(groups) - len(kept), len(groups))
        return kept

    return Part(name="diverse_vs_usual", call=call, reads=frozenset({f"score:{score}"}), writes=frozenset({"pairs"}))


@supplies("pairs")
def longest_vs_any(score: str = "reward") -> Part:
    """DPO-VP's pair: the longest of the best-scored replies against a random one of the worst-scored.

    Groups where all score the same are dropped.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept, clock = [], step.clock
        for group in groups:
            scores = [trace.scores[score] for trace in group.traces]
            if len(set(scores)) < 2:
                continue
            dice = randomness.rng(clock.seed, "longest_vs_any", clock.step, clock.tick, group.task.key)
            good = max((t for t in group.traces if t.scores[score] == max(scores)), key=len)
            bad = dice.choice([t for t in group.traces if t.scores[score] == min(scores)])
            group.traces, group.pairs = [good, bad], [(0, 1)]
            kept.append(group)
        step.notes.add("dropped/no_preference", len(groups) - len(kept), len(groups))
        return kept

    return Part(name="longest_vs_any", call=call, reads=frozenset({f"score:{score}"}), writes=frozenset({"pairs"}))


@supplies("pairs")
def best_vs_worst_beside(author: str, *others: str, score: str = "reward") -> Part:
    """The best against the worst of the replies by `others` (by anyone, where none are named); those by `author` stay.

    For methods with a term on the author's replies, whether they are in the pair or not. Groups without a pair are
    dropped.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = []
        for group in groups:
            compared = [t for t in group.traces if not others or bool(t.by(*others).any())]
            ranked = [compared[i] for i in ranking([trace.scores[score] for trace in compared])]
            if not ranked or ranked[0].scores[score] <= ranked[-1].scores[score]:
                continue
            beside = [
                t for t in group.traces if bool(t.by(author).any()) and t is not ranked[0] and t is not ranked[-1]
            ]
            group.traces, group.pairs = [ranked[0], ranked[-1], *beside], [(0, 1)]
            kept.append(group)
        step.notes.add("dropped/no_preference", len(groups) - len(kept), len(groups))
        return kept

    return Part(
        name=f"best_vs_worst_beside({author})",
        call=call,
        reads=frozenset({f"score:{score}", f"tokens:{author}"} | {f"tokens:{other}" for other in others}),
        writes=frozenset({"pairs"}),
    )
