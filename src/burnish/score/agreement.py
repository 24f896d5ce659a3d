"""How much the replies to one prompt agree on the answer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from burnish.nouns import Group
from burnish.parts import Part, supplies
from burnish.score.verify import reply_text
from burnish.step import Step
from burnish.tasks.rewards import final_answer


def bits(answers: Iterable[str]) -> float:
    """The entropy, in bits, of how often each answer was given: 0 where all agree, log2 n where all n differ."""
    counts = Counter(answers)
    n = sum(counts.values())
    return sum(c / n * math.log2(n / c) for c in counts.values())


@supplies("score:answer_entropy")
def answer_entropy(*, author: str = "policy", reader: str = "policy") -> Part:
    """scores["answer_entropy"] = the entropy in bits of the final answers of the group, the same for all its traces."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        chat = step.cast[reader].chat
        for group in groups:
            right = str(group.task.given.get("answer", ""))
            found = bits(final_answer(reply_text(trace, chat), right) for trace in group.traces)
            for trace in group.traces:
                trace.scores["answer_entropy"] = found
            step.notes.add("answer_entropy", found)
        return groups

    return Part(
        name="answer_entropy",
        call=call,
        reads=frozenset({f"tokens:{author}"}),
        writes=frozenset({"score:answer_entropy"}),
    )
