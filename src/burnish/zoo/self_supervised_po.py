"""Self-supervised Preference Optimization: Enhance Your Language Model with Preference Degree Awareness (arXiv
2409.17791).

Questions about replies of which some key words were removed: how much is missing? (SPO, arXiv 2409.17791.)
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated

from burnish import credit, draw, learn, rollout, select
from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

SELF_SUPERVISED_PO = Paper(
    "self-supervised-po",
    "2409.17791",
    "Self-supervised Preference Optimization: Enhance Your Language Model with Preference Degree Awareness",
)


ASK = (
    "Some key words may be missing from a reply. Question:\n{question}\nReply:\n{reply}\n"
    "How much is missing, from 0 (nothing) to {most}?"
)
_WORD = re.compile(r"[^\s]+")
_STOP = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "but",
        "by",
        "do",
        "for",
        "from",
        "has",
        "have",
        "he",
        "i",
        "if",
        "in",
        "is",
        "it",
        "its",
        "me",
        "my",
        "no",
        "not",
        "of",
        "on",
        "or",
        "our",
        "she",
        "so",
        "that",
        "the",
        "their",
        "them",
        "then",
        "there",
        "these",
        "they",
        "this",
        "to",
        "was",
        "we",
        "were",
        "what",
        "which",
        "who",
        "will",
        "with",
        "you",
        "your",
    ]
)


def keywords(text: str) -> list[int]:
    """The places (numbers of words) of the key words of a text, the most important first.

    RAKE: phrases are runs of words between stop words and punctuation; a word's score is its degree (the summed
    lengths of the phrases it is in) divided by its frequency. Ties in the order of the text.
    """
    words = [match.group() for match in _WORD.finditer(text)]
    plain = [word.strip(".,;:!?()[]\"'").lower() for word in words]
    phrases: list[list[int]] = [[]]
    for i, word in enumerate(plain):
        if word and word not in _STOP:
            phrases[-1].append(i)
        if not word or word in _STOP or words[i][-1] in ".,;:!?":
            phrases.append([])
    degree: Counter[str] = Counter()
    frequency: Counter[str] = Counter()
    for phrase in phrases:
        for i in phrase:
            degree[plain[i]] += len(phrase)
            frequency[plain[i]] += 1
    found = [i for phrase in phrases for i in phrase]
    return sorted(found, key=lambda i: (-degree[plain[i]] / frequency[plain[i]], i))


def without(text: str, places: set[int]) -> str:
    """The text without the words at these places; spaces and lines stay."""
    numbers = iter(range(len(text)))
    return _WORD.sub(lambda match: "" if next(numbers) in places else match.group(), text)


@supplies("tokens:degree")
def graded(*columns: str, levels: int, reader: str = "policy") -> Rollout:
    """For each named column `levels` + 1 traces: the question how much is missing, and its answer by author "degree".

    Of level k the k / levels most important key words are removed. What does not fit into the context is left out.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        return [Group(task, _asked(task, columns, levels, step, reader)) for task in tasks]

    return Rollout(
        name=f"graded({', '.join(columns)}; {levels} levels)",
        call=call,
        reads=frozenset({"task:prompt"}) | names("given", columns),
        writes=names("tokens", ("task", "degree")),
    )


def _asked(task: Task, columns: tuple[str, ...], levels: int, step: Step, reader: str) -> list[Trace]:
    model = step.models[reader]
    question = task.prompt if isinstance(task.prompt, str) else str(task.prompt[-1]["content"])
    traces: list[Trace] = []
    for column in columns:
        text = str(task.given[column])
        important = keywords(text)
        for level in range(levels + 1):
            gone = set(important[: round(level / levels * len(important))])
            asked = ASK.format(question=question, reply=without(text, gone), most=levels)
            prompt = Turn(
                model.chat.prompt(Task("degree", ({"role": "user", "content": asked},), {}, task.key)), "task"
            )
            answer = Turn(model.chat.reply(str(level)), "degree", parent=prompt)
            if len(prompt) + len(answer) <= model.context:
                traces.append(Trace((prompt, answer), len(traces), tags=frozenset({"graded"})))
    return traces


@register(
    SELF_SUPERVISED_PO,
    family="preference",
    summary="DPO, and an auxiliary task: to say how many key words are missing from a reply.",
    when="Pairs alone leave the policy blind to degrees of quality.",
)
def self_supervised_po(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    gamma: Annotated[float, Option("Weight of the auxiliary task; 0 is DPO.", at_least=0)] = 0.1,
    levels: Annotated[int, Option("Degrees besides the whole reply.", at_least=1, at_most=9)] = 3,
) -> Method:
    """SPO: self-supervised preference optimisation, around DPO.

    L = mean over pairs of -log s( beta [lr_w - lr_l] ) + gamma mean over graded copies of -log pi(degree | x, copy)

    A copy of degree k lacks the k / levels most important key words (RAKE) of the chosen or the rejected reply. The
    paper has a classifier on the policy's hidden states; here the policy itself answers how much is missing, so that
    the head is the language model's. The paper's text was not available: gamma and levels are ours. gamma = 0 is DPO.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.join(rollout.given("chosen", "rejected"), graded("chosen", "rejected", levels=levels)),
        select=select.given_pairs(),
        credit=credit.cached_ref(task),
        learn=learn.Learn(learn.dpo(beta, on="demo"), learn.imitate(coef=gamma, on="degree", name="degree")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )
