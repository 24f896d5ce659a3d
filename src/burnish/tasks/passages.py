"""`passages`: answer a question from numbered passages, some of which answer it, and cite those."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from burnish.core.seeds import rng
from burnish.core.splits import ByLevel
from burnish.core.task import Task, Verdict
from burnish.envs.hops import Question, draw_question
from burnish.verifiers.answer_line import answer_of


def ask(question: str, passages: Sequence[str]) -> str:
    """The prompt: the passages, numbered from 1 in their order, then the question.

    Passages of one word (level 1) stand in one line behind the question, and are counted from the left.
    """
    if all(" " not in text for text in passages):
        return f"{question}: {' '.join(passages)}"
    return "\n".join([*(f"[{i}] {text}" for i, text in enumerate(passages, 1)), question])


def cited_reply(thought: str, answer: str, cited: Sequence[int]) -> str:
    """A reply in the format that `rag_rl` asks for."""
    numbers = " ".join(f"[{number}]" for number in cited)
    return f"<think>{thought}</think>\nanswer: {answer}\ncitations: {numbers}"


class Passages(ByLevel):
    """Questions over 1, 2, 2 or 3 facts by level, among 3, 4, 8 or 12 distractors; levels 2 to 4 name people.

    given: question, passages (texts, the gold ones first), gold (how many are), supports (their numbers in the prompt)
    """

    name: ClassVar[str] = "passages"
    summary: ClassVar[str] = "answer questions over several passages, and cite those that answer them"
    gives: ClassVar[frozenset[str]] = frozenset(
        {"answer", "demo", "mistake", "question", "passages", "gold", "sources", "supports"}
    )

    def task(self, split: str, index: int) -> Task:
        question = self.drawn(split, index, lambda dice: draw_question(dice, self.level), self.key)
        return passages_task(question, self.key(question), len(question.distractors))

    def key(self, question: Question) -> str:
        return f"{self.name} {question.facts}"

    def facts(self, task: Task) -> str:
        """The right answer."""
        return str(task.given["answer"])

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.verdict(self.facts(task), reply)

    def verdict(self, right: str, reply: str) -> Verdict:
        """Correct where the line `answer:` ends with the right name; citations are judged by the reward rag_rl."""
        said = answer_of(reply)
        if said is None:
            return Verdict(0.0, False, "no line 'answer: ...' in the reply")
        if said.casefold().split()[-1:] == [right.casefold()]:
            return Verdict(1.0, True)
        return Verdict(0.0, False, f"the answer is {right}, not {said[:40]!r}")


def passages_task(found: Question, key: str, many: int) -> Task:
    """The question with its gold passages and the first `many` distractors, in an order that the key decides."""
    passages = [found.passage(fact) for fact in (*found.facts, *found.distractors)]
    given = {"question": found.text, "passages": passages, "gold": len(found.facts), "answer": found.answer}
    task = Task("question", "", given, key)
    task = with_distractors(task, many)
    wrong = rng(key, "mistake").choice([other for _, _, other in found.distractors])
    thought = " ".join(found.passage(fact) for fact in found.facts)
    demo = cited_reply(thought, found.answer, task.given["supports"])
    mistake = cited_reply(thought, wrong, task.given["supports"])
    return Task(task.kind, task.prompt, {**task.given, "demo": demo, "mistake": mistake}, key)


def with_distractors(task: Task, many: int) -> Task:
    """The task asked with its gold passages and the first `many` others, shuffled by the task's key.

    The task gives question, passages and gold: the passages that answer it come first, `gold` of them.
    """
    passages, gold = list(task.given["passages"]), int(task.given["gold"])
    if not 0 < gold <= len(passages):
        raise ValueError(f"task {task.key[:60]!r} has gold={gold} of {len(passages)} passages; at least one is needed")
    shown = list(range(min(gold + many, len(passages))))
    rng(task.key, "order").shuffle(shown)
    supports = sorted(place for place, number in enumerate(shown, 1) if number < gold)
    sources = [str(number) for number in range(1, len(shown) + 1)]
    asked = ask(str(task.given["question"]), [passages[number] for number in shown])
    given = {**task.given, "sources": sources, "supports": [str(number) for number in supports]}
    return Task(task.kind, ({"role": "user", "content": asked},), given, task.key)
