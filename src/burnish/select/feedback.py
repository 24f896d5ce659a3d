"""Replies followed by what the verifier said of them."""

from __future__ import annotations

from burnish.cast.member import Member
from burnish.nouns import Group, Task, Trace, Turn
from burnish.parts import Part, supplies
from burnish.rollout.conditioned import conditioned
from burnish.step import Step


@supplies("tokens:env", "tokens:start")
def with_feedback(
    good: str, bad: str, *, threshold: float = 0.5, score: str = "reward", reader: str = "policy"
) -> Part:
    """Each sampled reply as one text to model: condition, question, reply, and the verifier's words where it failed.

    A reply that scores more than the threshold stands under `good` and without words; any other under `bad`, and the
    reason in the verdict (or "wrong", where there is none) follows it, by "env". The first token of the text, which
    nothing comes before, is by "start"; the rest of the question by "task". (LeTI, arXiv 2305.10314.)
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            told = []
            for trace in group.traces:
                passed = trace.scores[score] > threshold
                told += _told(trace, group.task, good if passed else bad, not passed, step.cast[reader])
            group.traces = told
        return [group for group in groups if group.traces]

    return Part(
        name="with_feedback",
        call=call,
        reads=frozenset({f"score:{score}", "tokens:policy"}),
        writes=frozenset({"tokens:env", "tokens:start"}),
    )


def _told(trace: Trace, task: Task, words: str, failed: bool, reader: Member) -> list[Trace]:
    """The text, cut where the context ends; nothing where no room is left for the reply."""
    prompt = reader.chat.prompt(conditioned(task, words))
    room = reader.context - len(prompt)
    reply = trace.turns[-1].tokens[: max(0, room)]
    if not len(reply):
        return []
    start = Turn(prompt[:1], "start")
    asked = Turn(prompt[1:], "task", parent=start)
    said = Turn(reply, "policy", parent=asked)
    told = [start, asked, said]
    if failed and room > len(reply):
        answer = reader.chat.observation(str(trace.note.get("why", "wrong")))
        told.append(Turn(answer[: room - len(reply)], "env", parent=said))
    return [Trace(tuple(told), trace.index, dict(trace.scores), tags=trace.tags, note=dict(trace.note))]
