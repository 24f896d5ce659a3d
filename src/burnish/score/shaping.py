"""Reward shaping: partial credit for stating an answer, and for correcting or breaking an earlier reply."""

from __future__ import annotations

import re

from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.score.judge import reply_text

_STATED = re.compile(r"answer\s*:\s*\S|####\s*\S|\\boxed\s*\{", re.IGNORECASE)


@supplies("score:shaped")
def partial_for_answering(partial: float, *, reader: str = "policy") -> Part:
    """shaped = the reward, or `partial` if that is 0 and the reply states an answer (R3, arXiv 2402.05808).

    An answer is stated by `answer: ...`, `#### ...` or `\\boxed{...}`.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        stated = _STATED.search(reply_text(trace, step.models[reader].chat)) is not None
        reward = trace.scores["reward"]
        trace.scores["shaped"] = partial if reward == 0 and stated else reward
        step.notes.add("answered", stated)

    return per_trace(
        write,
        name=f"partial_for_answering({partial:g})",
        reads=frozenset({"score:reward"}),
        writes=frozenset({"score:shaped"}),
    )
