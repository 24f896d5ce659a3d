"""Rewards without labels: agreement with the answer that most replies to a prompt give (SeRL, arXiv 2505.20347)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.task import MADE_FROM
from burnish.core.types import Group
from burnish.score.judge import reply_text
from burnish.verifiers.final_answer import final_answer, same_answer


def agreement(answers: Sequence[str], same: Callable[[str, str], bool] = same_answer) -> list[float]:
    """1 for each answer that agrees with the largest class, else 0; an empty answer agrees with nothing.

    Agreement need not be transitive, so the class is the row of the equality matrix with most hits, the first of equal
    ones. 4, 4, 5, 4 gives 1, 1, 0, 1.
    """
    counts = Counter(answer for answer in answers if answer)
    rows = {a: {b for b in counts if a == b or same(b, a)} for a in counts}
    if not rows:
        return [0.0] * len(answers)
    best = max(rows, key=lambda a: sum(counts[b] for b in rows[a]))  # the first of equal ones: dicts keep their order
    return [float(answer in rows[best]) for answer in answers]


def _write(group: Group, step: Step, reader: str, score: str) -> None:
    chat = step.models[reader].chat
    found = agreement([final_answer(reply_text(trace, chat)) for trace in group.traces])
    for trace, value in zip(group.traces, found, strict=True):
        trace.scores[score] = value
    if found:
        step.notes.add("majority_share", sum(found), len(found))


@supplies("score:reward")
def majority(*, author: str = "policy", reader: str = "policy", score: str = "reward") -> Part:
    """scores["reward"] = 1 where the final answer agrees with the group's largest class of answers, else 0."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            _write(group, step, reader, score)
        return groups

    return Part(name="majority", call=call, reads=frozenset({f"tokens:{author}"}), writes=frozenset({f"score:{score}"}))


def known_or_majority(verify: Part, *, reader: str = "policy") -> Part:
    """The verifier for prompts that it knows, the majority for prompts that the run made (their answers are unknown).

    The latter have no score "correct", which says that an answer was verified.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        own = [group for group in groups if MADE_FROM in group.task.given]
        known = verify.call([group for group in groups if MADE_FROM not in group.task.given], step)
        for group in own:
            _write(group, step, reader, "reward")
        kept = {id(group) for group in known} | {id(group) for group in own}
        return [group for group in groups if id(group) in kept]

    def begin(group: Group, step: Step) -> None:
        if MADE_FROM not in group.task.given:
            assert verify.begin is not None
            verify.begin(group, step)

    return replace(verify, call=call, begin=None if verify.begin is None else begin)
