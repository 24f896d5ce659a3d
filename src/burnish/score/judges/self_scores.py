"""Scores that the policy gives to its own replies, as referee (URPO)."""

from __future__ import annotations

from burnish.core import randomness
from burnish.core.parts import Part
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.judges import read, vote
from burnish.judges.question import Template, question
from burnish.score.judges.asked import Item, by_group, items_of, note_unread
from burnish.score.judges.judge import Judge


def self_scores(judge: Judge, template: Template, kind: tuple[str, str], *, low: int = 1, high: int = 10) -> Part:
    """scores["reward"] of the groups whose task is of a kind (column, value) = (score - low) / (high - low).

    The judge scores all replies of a group in one question, in a shuffled order. A reply without content gets 0. An
    answer that cannot be read leaves the group at reward 0, so nothing is learned from it. No gradient goes through
    these scores. Notes self_score, their mean.
    """
    column, value = kind

    def call(groups: list[Group], step: Step) -> list[Group]:
        chosen = [group for group in groups if group.task.given.get(column) == value]
        parties = [own for own in by_group(_shown(chosen, step)) if own]
        orders = [randomness.shuffled(len(own), "self", own[0].prompt, *(i.reply for i in own)) for own in parties]
        asked = []
        for own, order in zip(parties, orders, strict=True):
            data = [("request", own[0].prompt), *((f"reply {p + 1}", own[i].reply) for p, i in enumerate(order))]
            asked.append(question(template, data, count=str(len(own)), low=str(low), high=str(high)))
        unread = 0
        for own, order, (answer,) in zip(parties, orders, judge.ask(asked, step), strict=True):
            scores = None if answer.failed else read.brief_scores(answer.text, len(own), low, high)
            unread += scores is None
            for item, score in zip(own, vote.unshuffled(scores, order) if scores else [], strict=bool(scores)):
                item.trace.scores["reward"] = (score - low) / (high - low)
                step.notes.add("self_score", item.trace.scores["reward"])
        note_unread(step, unread, len(parties))
        return groups

    return Part(
        name=f"self_scores({judge.name})",
        call=call,
        reads=judge.reads | {"tokens:policy", "score:reward", f"given:{column}"},
        updates=frozenset({"score:reward"}),
    )


def note_agreement(kind: tuple[str, str]) -> Part:
    """Notes referee_agreement: the mean reward of the tasks of a kind, next to which self-scores must be read."""
    column, value = kind

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            if group.task.given.get(column) == value and group.traces:
                step.notes.add("referee_agreement", sum(t.scores["reward"] for t in group.traces), len(group.traces))
        return groups

    reads = frozenset({"score:reward", f"given:{column}"})
    return Part(name="note_agreement", call=call, reads=reads, updates=frozenset({"score:reward"}))


def _shown(groups: list[Group], step: Step) -> list[Item]:
    return [item for item in items_of(groups, step) if not item.empty]
