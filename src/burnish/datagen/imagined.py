"""Imagined dialogues with rewards: personas, dialogues of varied skill, and a judge's label of each outcome.

The data of "Zero-Shot Goal-Directed Dialogue via RL on Imagined Conversations" (arXiv 2311.05584), for offline RL
(`burnish train ilql`). The stages are the paper's, the words of the questions are ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from burnish.core.messages import Message
from burnish.core.step import Step
from burnish.datagen.preference_data import Made
from burnish.judges import read
from burnish.judges.question import Question, Template, question
from burnish.score.judges.judge import Judge

SKILLS = {
    "poor": "The agent is unskilled: it ignores what the person says and does not reach its goal.",
    "average": "The agent does some things well and others badly.",
    "expert": "The agent is an expert: it finds out what it must know and reaches its goal in few turns.",
}
BEST = 10  # the highest score of an outcome

_PERSONA = Template(
    "imagine-persona",
    1,
    "An agent has the following task.\n$data\nInvent one person with whom the agent has to do this task: who they are, "
    "what they know, what they want and what they do not say at first. Answer with two or three sentences about the "
    "person, and nothing else.",
)
_DIALOGUE = Template(
    "imagine-dialogue",
    1,
    "An agent has a task, and talks with a person.\n$data\n$skill Write their whole dialogue, of at most $turns lines "
    "each. The person begins. Begin each line with 'User:' for the person or 'Agent:' for the agent, in turn. Write "
    "nothing else.",
)
_LABEL = Template(
    "imagine-label",
    1,
    "An agent has a task, and has talked with a person.\n$data\nHow well did the agent reach the goal of its task, "
    "from 0 (not at all) to 10 (entirely)? Explain in one sentence, then end with a line 'Score: N'.",
)
_SAID = re.compile(r"^[\s*_]*(User|Agent)[\s*_]*:[\s*_]*", re.MULTILINE)


@dataclass(frozen=True)
class Imagination:
    """What is imagined: the task of the agent, the dialogues with each persona and their longest length in turns."""

    task: str
    dialogues: int = 3
    turns: int = 6


def imagine(
    imagination: Imagination, writer: Judge, judge: Judge, step: Step, *, start: int, count: int, at_once: int = 8
) -> Iterator[list[Made]]:
    """What comes of personas start .. count - 1, a few at a time: a row for each dialogue that can be read and judged.

    A row has `messages`, `reward` (the outcome between 0 and 1), `persona` and `skill`.
    """
    for first in range(start, count, at_once):
        numbers = range(first, min(count, first + at_once))
        personas = [one[0] for one in writer.ask([persona_question(imagination, i) for i in numbers], step)]
        skills = list(SKILLS)
        asked = [
            (k, skills[(i + k) % len(skills)], dialogue_question(imagination, persona.text, skills[(i + k) % 3], i, k))
            for i, persona in zip(numbers, personas, strict=True)
            for k in range(imagination.dialogues)
        ]
        texts = [one[0] for one in writer.ask([words for *_, words in asked], step)]
        dialogues = [None if one.failed else parse_dialogue(one.text) for one in texts]
        persons = [persona.text for persona in personas for _ in range(imagination.dialogues)]
        labels = _labels(imagination, dialogues, persons, judge, step)
        made = []
        for j, (i, persona) in enumerate(zip(numbers, personas, strict=True)):
            own = range(j * imagination.dialogues, (j + 1) * imagination.dialogues)
            rows = [
                {"messages": list(messages), "reward": label, "persona": persona.text, "skill": asked[n][1]}
                for n in own
                if (messages := dialogues[n]) is not None and (label := labels[n]) is not None and not persona.failed
            ]
            made.append(Made(i, rows, replies=len(own), failed=len(own) - len(rows)))
        yield made


def _labels(
    imagination: Imagination,
    dialogues: Sequence[tuple[Message, ...] | None],
    personas: Sequence[str],
    judge: Judge,
    step: Step,
) -> list[float | None]:
    """The outcome of each dialogue between 0 and 1; None for one that could not be read or judged."""
    there = [n for n, messages in enumerate(dialogues) if messages is not None]
    asked = [label_question(imagination, personas[n], dialogues[n] or ()) for n in there]
    answers = judge.ask(asked, step) if asked else []
    scores: list[float | None] = [None] * len(dialogues)
    for n, (answer,) in zip(there, answers, strict=True):
        score = None if answer.failed else read.score(answer.text, 0, BEST)
        scores[n] = None if score is None else score / BEST
    return scores


def persona_question(imagination: Imagination, number: int) -> Question:
    """What asks the writer for the person of this number."""
    return replace(question(_PERSONA, [("task", imagination.task)]), number=number)


def dialogue_question(imagination: Imagination, persona: str, skill: str, number: int, place: int) -> Question:
    """What asks the writer for a dialogue with a person: the one at `place` with the person of this number."""
    data = [("task", imagination.task), ("person", persona)]
    asked = question(_DIALOGUE, data, skill=SKILLS[skill], turns=str(imagination.turns))
    return replace(asked, number=number * 1000 + place)


def label_question(imagination: Imagination, persona: str, messages: Sequence[Message]) -> Question:
    """What asks the judge for the outcome of a dialogue."""
    names = {"user": "User", "assistant": "Agent"}
    said = "\n".join(f"{names[message['role']]}: {message['content']}" for message in messages)
    return question(_LABEL, [("task", imagination.task), ("person", persona), ("dialogue", said)])


def parse_dialogue(text: str) -> tuple[Message, ...] | None:
    """The messages of "User: ..." and "Agent: ..." lines; None where they do not alternate, where the person does not
    begin, or where a line is empty. What follows the agent's last line is left out.
    """
    pieces = _SAID.split(text)
    if len(pieces) < 5 or pieces[0].strip():
        return None
    roles = {"User": "user", "Agent": "assistant"}
    messages = [
        {"role": roles[who], "content": said.strip()} for who, said in zip(pieces[1::2], pieces[2::2], strict=True)
    ]
    if messages[-1]["role"] == "user":
        messages.pop()
    expected = ["user", "assistant"] * (len(messages) // 2)
    if [message["role"] for message in messages] != expected or not all(message["content"] for message in messages):
        return None
    return tuple(messages)
