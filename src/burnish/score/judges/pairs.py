"""Pairs of replies before a judge: a matrix of leads within a group, and chances to win against another text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

from burnish.core.seeds import key_of
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.judges import read, vote
from burnish.judges.question import Question, Template, question
from burnish.score.judges.asked import Item, by_group, items_of, note_unread, reason
from burnish.score.judges.judge import Judge


@dataclass(frozen=True)
class Party:
    """The replies of a group, and the matrix d_ij of their verdicts.

    why: of each reply that a question was asked about, why none of its answers could be read; empty where one could
    """

    own: list[Item]
    matrix: list[list[float]]
    why: dict[int, str]


ROW = "leads"  # note of a trace: by how much it leads each reply of its group, in their order
WORST = 3.0  # a reply without content loses against every other by the largest verdict


def differences(groups: list[Group], judge: Judge, template: Template, orders: int, step: Step) -> list[Party]:
    """Of each group its replies and the matrix d_ij; a reply without content leads by -WORST, two of them by 0.

    A verdict that cannot be read counts 0.
    """
    parties = by_group(items_of(groups, step))
    asked: list[tuple[int, int, int, float, Question]] = []  # party, i, j, sign, question
    for k, own in enumerate(parties):
        for i, j in combinations(range(len(own)), 2):
            if own[i].empty or own[j].empty:
                continue
            first = 1.0 if key_of("order", own[i].reply, own[j].reply) % 2 else -1.0
            for sign in (first, -first)[:orders]:
                a, b = (own[i], own[j]) if sign > 0 else (own[j], own[i])
                data = (("request", a.prompt), ("A", a.reply), ("B", b.reply))
                asked.append((k, i, j, sign, question(template, data)))
    answers = judge.ask([one[-1] for one in asked], step)
    found = [Party(own, _gated(own), {}) for own in parties]
    unread = 0
    for (k, i, j, sign, _), (answer,) in zip(asked, answers, strict=True):
        verdict = None if answer.failed else read.graded(answer.text)
        unread += verdict is None
        lead = -sign * (verdict or 0) / orders  # a negative verdict says that A, the first, is better
        found[k].matrix[i][j] += lead
        found[k].matrix[j][i] -= lead
        why = "" if verdict is not None else reason([answer])
        for reply in (i, j):
            found[k].why[reply] = why and found[k].why.get(reply, why)
    note_unread(step, unread, len(asked))
    return found


def _gated(own: list[Item]) -> list[list[float]]:
    return [[WORST * (float(b.empty) - float(a.empty)) for b in own] for a in own]


def win_chances(
    pairs: list[tuple[str, str, str]], judge: Judge, template: Template, step: Step
) -> list[tuple[float | None, str]]:
    """P(y better than z) of each (prompt, y, z), from the probabilities of A and B in both orders; or None and why."""
    orders = [((p, y, z), (p, z, y)) for p, y, z in pairs]
    asked = [question(template, (("request", p), ("A", a), ("B", b))) for both in orders for p, a, b in both]
    found = judge.choose(asked, ("A", "B"), step)
    note_unread(step, sum(one.failed for one in found), len(found))
    results: list[tuple[float | None, str]] = []
    for first, second in zip(found[::2], found[1::2], strict=True):
        chances = [None if one.failed else _sigmoid(one.logit) for one in (first, second)]
        results.append((vote.both_orders(*chances), first.why or second.why))
    return results


def spoken_chances(
    pairs: list[tuple[str, str, str]], judge: Judge, template: Template, step: Step
) -> list[tuple[float | None, str]]:
    """P(y better than z) of each (prompt, y, z) = 1/2 + (lead of y, shown first and second) / 12; or None and why.

    A verdict that cannot be read does not count: the other order's alone is 1/2 + lead / 6.
    """
    asked = [question(template, (("request", p), ("A", a), ("B", b))) for p, y, z in pairs for a, b in ((y, z), (z, y))]
    answers = [one for (one,) in judge.ask(asked, step)]
    verdicts = [None if answer.failed else read.graded(answer.text) for answer in answers]
    note_unread(step, sum(verdict is None for verdict in verdicts), len(verdicts))
    results: list[tuple[float | None, str]] = []
    for i in range(0, len(verdicts), 2):
        first, second = verdicts[i], verdicts[i + 1]  # a negative verdict says that A is better
        lead = vote.mean([None if first is None else -float(first), None if second is None else float(second)])
        why = reason([answers[i]])
        results.append((None, why) if lead is None else (0.5 + lead / (2 * WORST), ""))
    return results


def _sigmoid(x: float) -> float:
    return 0.5 * (1 + math.tanh(x / 2))
