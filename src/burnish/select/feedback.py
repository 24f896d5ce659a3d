"""Replies told again after what the verifier said of them."""

from __future__ import annotations

from burnish.core.parts import Part
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.models.model import Model
from burnish.rollout.conditioned import conditioned


def with_feedback(
    good: str, bad: str, *, threshold: float = 0.5, score: str = "reward", reader: str = "policy"
) -> Part:
    """Each sampled reply as one text to model: condition, the verifier's words where it failed, question, reply.

    A reply that scores more than the threshold stands under `good`; any other under `bad` and the reason in its verdict
    (where there is one). The first token of the text, which nothing comes before, is by "start"; the rest up to the
    reply by "task". (LeTI, arXiv 2305.10314.)
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            told = []
            for trace in group.traces:
                why = str(trace.note.get("why", ""))
                words = good if trace.scores[score] > threshold else "\n".join(part for part in (bad, why) if part)
                told += _told(trace, group.task, words, step.models[reader])
            group.traces = told
        return [group for group in groups if group.traces]

    return Part(
        name="with_feedback",
        call=call,
        reads=frozenset({f"score:{score}", "tokens:policy"}),
        updates=frozenset({"tokens:task", "tokens:policy"}),
    )


def _told(trace: Trace, task: Task, words: str, reader: Model) -> list[Trace]:
    """The text, cut where the context ends; nothing where no room is left for the reply."""
    prompt = reader.chat.prompt(conditioned(task, words))
    reply = trace.turns[-1].tokens[: max(0, reader.context - len(prompt))]
    if not len(reply):
        return []
    start = Turn(prompt[:1], "start")
    asked = Turn(prompt[1:], "task", parent=start)
    turns = (start, asked, Turn(reply, "policy", parent=asked))
    return [Trace(turns, trace.index, dict(trace.scores), tags=trace.tags, note=dict(trace.note))]
