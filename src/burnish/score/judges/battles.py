"""Comparisons of two texts by a judge: battles between replies, and whether two instructions are equal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from burnish.core.messages import prompt_shown
from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.judges import read, vote
from burnish.judges.question import Template, question
from burnish.judges.rewrites import equality_question, plain, says_unequal
from burnish.score.judge import reply_text
from burnish.score.judges.asked import note_unread
from burnish.score.judges.judge import Judge

LOW, HIGH = 1, 10  # the scale of a judge's scores in a battle
Fight = tuple[str, str, str]  # prompt, first reply, second reply


def fought(fights: Sequence[Fight], judge: Judge, template: Template, step: Step) -> list[float]:
    """By how much each first reply is better than the second, on the judge's scale; 0: undecided.

    The judge scores both replies from 1 to 10, in both orders. The mean difference counts if both orders agree on the
    winner; otherwise, and where an answer cannot be read, the battle is undecided.
    """
    asked = [
        question(template, (("request", p), ("reply 1", a), ("reply 2", b)), count="2", low=str(LOW), high=str(HIGH))
        for p, first, second in fights
        for a, b in ((first, second), (second, first))
    ]
    answers = [one for (one,) in judge.ask(asked, step)]
    scores = [None if answer.failed else read.brief_scores(answer.text, 2, LOW, HIGH) for answer in answers]
    note_unread(step, sum(score is None for score in scores), len(scores))
    leads = [None if score is None else score[0] - score[1] for score in scores]
    found = []
    for one, other in zip(leads[::2], leads[1::2], strict=True):
        found.append(vote.principle_score(one, None if other is None else -other) or 0.0)
    return found


@supplies("score:battle")
def battles(judge: Judge | None, template: Template, *, target: str = "policy", rival: str = "rival") -> Part:
    """scores["battle"] of each reply: its lead over the target's reply, which has 0; 0 for an undecided battle.

    judge: None: the difference of scores["reward"]
    Notes battles/won, battles/lost and battles/tied: shares of the target's battles.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        chat, parties = step.models["policy"].chat, [_parties(group, target, rival) for group in groups]
        if judge is None:
            leads = [
                other.scores["reward"] - own.scores["reward"] for own, others in parties for other in others if own
            ]
        else:
            fights = [
                (prompt_shown(group.task.prompt), reply_text(other, chat), reply_text(own, chat))
                for group, (own, others) in zip(groups, parties, strict=True)
                for other in others
                if own
            ]
            leads = fought(fights, judge, template, step)
        following = iter(leads)
        for own, others in parties:
            if own:
                own.scores["battle"] = 0.0
            for other in others:
                other.scores["battle"] = next(following) if own else 0.0
        for name, count in outcomes(leads).items():
            step.notes.add(f"battles/{name}", count, max(1, len(leads)))
        return groups

    reads = {f"tokens:{target}", f"tokens:{rival}"} | (judge.reads if judge else {"score:reward"})
    return Part(
        name=f"battles({judge.name if judge else 'reward'})",
        call=call,
        reads=frozenset(reads),
        writes=frozenset({"score:battle"}),
    )


def outcomes(leads: Sequence[float]) -> dict[str, int]:
    """How many battles the target won, lost and tied, by the leads of its rivals."""
    return {"won": sum(x < 0 for x in leads), "lost": sum(x > 0 for x in leads), "tied": sum(x == 0 for x in leads)}


def _parties(group: Group, target: str, rival: str) -> tuple:
    own = next((trace for trace in group.traces if target in trace.authors()), None)
    return own, [trace for trace in group.traces if rival in trace.authors()]


@supplies("turn_score:reward")
def unequal(judge: Judge | None, template: Template, texts: str = "instructions") -> Part:
    """turn_scores["reward"] of each rewritten instruction: 1 if it is not equal to the one before, else 0.

    judge: says Equal or Not Equal; None: they are equal if they have the same words. An answer that cannot be read
    counts as Equal. Texts that are the same are Equal without a question.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        pairs = [pair for trace in traces for pair in zip(trace.note[texts], trace.note[texts][1:], strict=False)]
        differ = [plain(old) != plain(new) for old, new in pairs]
        if judge is not None:
            asked = [equality_question(template, *pair) for pair, other in zip(pairs, differ, strict=True) if other]
            said = [None if one.failed else says_unequal(one.text) for (one,) in judge.ask(asked, step)]
            note_unread(step, sum(verdict is None for verdict in said), len(said))
            verdicts = iter(said)
            differ = [other and bool(next(verdicts)) for other in differ]
        following = iter(differ)
        for trace in traces:
            rewards = [float(next(following)) for _ in trace.turns[1:]]
            trace.turn_scores["reward"] = [math.nan, *rewards]
            step.notes.add("not_equal", sum(rewards), len(rewards))
        return groups

    return Part(
        name=f"unequal({judge.name if judge else 'texts'})",
        call=call,
        reads=frozenset({"tokens:executor"}) | (judge.reads if judge else frozenset()),
        writes=frozenset({"turn_score:reward"}),
    )
