"""One question per reply (or a few), numbers back: what rubric, criteria and items have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from burnish.core.parts import Part
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.judges import vote
from burnish.judges.question import Question
from burnish.score.judges.asked import Item, Writer, items_of, note_unread, reason
from burnish.score.judges.judge import Judge

Asking = Callable[[Item], Question]
Reading = Callable[[str], float | None]
Pair = tuple[Item, float | None, str]  # a reply, its score or None, and why it has none


def mean_scores(
    items: Sequence[Item], judge: Judge, asking: Asking, reading: Reading, step: Step, samples: int = 1
) -> list[Pair]:
    """Each reply with the mean of what could be read of its answers; None, with the reason, where nothing could be."""
    answers = judge.ask([asking(item) for item in items], step, samples)
    found: list[Pair] = []
    unread = 0
    for item, own in zip(items, answers, strict=True):
        values = [None if answer.failed else reading(answer.text) for answer in own]
        unread += sum(value is None for value in values)
        found.append((item, vote.mean(values), reason([a for a, v in zip(own, values, strict=True) if v is None])))
    note_unread(step, unread, samples * len(items))
    return found


def pointwise(
    name: str,
    judge: Judge,
    asking: Asking,
    reading: Reading,
    *,
    worst: float = 0.0,
    samples: int = 1,
    unparsed: float | None = None,
) -> Part:
    """scores["reward/NAME"] = the mean reading of `samples` answers to one question; `worst` for a master key."""
    writer = Writer(name, unparsed)

    def call(groups: list[Group], step: Step) -> list[Group]:
        items = items_of(groups, step)
        for item in items:
            if item.empty:
                writer.write(item, worst, "")
        for item, value, why in mean_scores([i for i in items if not i.empty], judge, asking, reading, step, samples):
            writer.write(item, value, why)
        return groups

    return Part(
        name=f"{name}({judge.name})",
        call=call,
        reads=judge.reads | {"tokens:policy"},
        writes=writer.writes,
    )
