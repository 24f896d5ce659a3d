"""Which steps of an episode are bad, by a model's own judgement."""

from __future__ import annotations

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.score.words import told, word_logps

GRADES = ("good", "uncertain", "bad")
QUESTION = "Is the agent's last step good, bad or uncertain? Answer with one word."


@supplies("tag:judged")
def bad_steps(*, who: str = "policy", author: str = "policy") -> Part:
    """note["bad"] = which of the trace's turns are steps that `who` calls bad, in their order.

    It reads the episode up to each step and the answer to it, and says good, uncertain or bad: the word with the
    largest log-prob. The answer to the last step is not part of an episode.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        chat = step.models[who].chat
        asked: dict[int, list[tuple[Trace, int]]] = {}  # a turn that traces share is judged once
        for trace in (trace for group in groups for trace in group.traces):
            trace.tags |= {"judged"}
            trace.note["bad"] = []
            for i, turn in enumerate(trace.turns):
                if turn.author == author:
                    asked.setdefault(id(turn), []).append((trace, i))
        firsts = [places[0] for places in asked.values()]
        questions = [f"{told(trace.turns[: i + 2], chat)}\n{QUESTION}" for trace, i in firsts]
        for places, logps in zip(asked.values(), word_logps(questions, GRADES, who, step), strict=True):
            bad = GRADES[max(range(len(GRADES)), key=logps.__getitem__)] == "bad"
            step.notes.add("steps_judged_bad", float(bad))
            for trace, i in places if bad else ():
                trace.note["bad"] = sorted([*trace.note["bad"], i])
        return groups

    return Part(
        name="bad_steps",
        call=call,
        reads=frozenset({f"tokens:{author}", f"model:{who}.logp"}),
        writes=frozenset({"tag:judged"}),
    )
