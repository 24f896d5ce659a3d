"""Entropy of the final answers to one prompt."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.score.judge import reply_text
from burnish.verifiers.final_answer import final_answer


def bits(answers: Iterable[str]) -> float:
    """Entropy of the answer frequencies in bits: 0 if all agree, log2 n if all n differ."""
    counts = Counter(answers)
    n = sum(counts.values())
    return sum(c / n * math.log2(n / c) for c in counts.values())


@supplies("score:answer_entropy")
def answer_entropy(*, author: str = "policy", reader: str = "policy") -> Part:
    """scores["answer_entropy"] = entropy of the group's final answers in bits, the same for all its traces."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        chat = step.models[reader].chat
        for group in groups:
            right = str(group.task.given.get("answer", ""))
            entropy = bits(final_answer(reply_text(trace, chat), right) for trace in group.traces)
            for trace in group.traces:
                trace.scores["answer_entropy"] = entropy
            step.notes.add("answer_entropy", entropy)
        return groups

    return Part(
        name="answer_entropy",
        call=call,
        reads=frozenset({f"tokens:{author}"}),
        writes=frozenset({"score:answer_entropy"}),
    )
