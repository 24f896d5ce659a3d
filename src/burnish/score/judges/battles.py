"""Comparisons of two texts by a judge: battles between replies, and whether two instructions are equal."""

from __future__ import annotations

from collections.abc import Sequence

from burnish.core.step import Step
from burnish.judges import read, vote
from burnish.judges.question import Template, question
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
