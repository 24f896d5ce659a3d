"""Preference rows as tasks for a judge: the prompt is a question about replies, the reward agreement with the label.

The replies stand in an order that depends on a hash of their texts, which a verdict's reading undoes. If the run has a
reward of its own (--reward), that scores the judge's answers instead of the rule.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from burnish.core import randomness
from burnish.core.messages import prompt_shown
from burnish.core.task import Task, Verdict
from burnish.judges import read, vote
from burnish.judges.question import Question, Template, question
from burnish.tasks.source import Source
from burnish.tasks.task_set import MadeTasks

ORDER, WORTH, LABEL = "judge_order", "judge_worth", "judge_label"  # what a judge task is given besides the row
STRENGTH = "strength"  # column: how much better the chosen reply is, 1 to 3


def has_preferences(source: Source) -> bool:
    """Whether each of its tasks has replies of which one is better."""
    return any(names <= source.gives for names in ({"chosen", "rejected"}, {"demo", "mistake"}))


def require_preferences(source: Source) -> None:
    """Raise ValueError for a source without preferences."""
    if not has_preferences(source):
        has = ", ".join(sorted(source.gives)) or "nothing"
        raise ValueError(
            f"task {source.name!r} gives no preferences to train a judge on (it gives {has}); choose data with the "
            "columns chosen and rejected, or responses with scores or ranks"
        )


def candidates(task: Task) -> tuple[list[str], list[float]]:
    """The replies of a row and how good each is: ranked ones, or (chosen, rejected) with 1 and 0."""
    given = task.given
    if given.get("responses") and (given.get("scores") or given.get("ranks")):
        worth = given.get("scores") or [-float(rank) for rank in given["ranks"]]
        return [str(text) for text in given["responses"]], [float(value) for value in worth]
    first, second = ("chosen", "rejected") if "chosen" in given else ("demo", "mistake")
    return [str(given[first]), str(given[second])], [1.0, 0.0]


class JudgeTasks(MadeTasks):
    """Questions about the replies of a source's rows. Subclasses say how to ask and how to read."""

    eager = None

    def __init__(self, source: Source) -> None:
        require_preferences(source)
        super().__init__(source)
        self.gives = source.gives | {ORDER, WORTH}

    @abstractmethod
    def asked(self, task: Task, replies: list[str], worth: list[float]) -> tuple[Question, dict[str, Any]]:
        """The question about the replies, in the order shown, and what its reading needs."""

    @abstractmethod
    def rule(self, task: Task, answer: str) -> Verdict:
        """The verdict of a judge's answer."""

    def task(self, split: str, index: int) -> Task:
        return self.question_about(self.source.task(split, index))

    def question_about(self, row: Task) -> Task:
        """The judge task of a row."""
        replies, worth = candidates(row)
        order = randomness.shuffled(len(replies), "judge task", prompt_shown(row.prompt), *replies)
        asked, given = self.asked(row, [replies[i] for i in order], [worth[i] for i in order])
        added = {ORDER: order, WORTH: [worth[i] for i in order], **given}
        prompt = ({"role": "user", "content": asked.text},)
        return Task("question", prompt, {**row.given, **added}, f"judge {asked.key[:12]} {row.key}")

    def require_verifier(self, split: str) -> None:
        """The rule judges every answer."""

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.verdicts([task], [reply])[0]

    def verdicts(self, tasks: list[Task], replies: list[str]) -> Sequence[Verdict]:
        if self.source.rewarded_by == "function":
            return self.source.verdicts(tasks, replies)
        found = [self.rule(task, reply) for task, reply in zip(tasks, replies, strict=True)]
        return [replace(one, score=0.0) for one in found] if self.source.rewarded_by == "scorers" else found


class ScoredReplies(JudgeTasks):
    """The judge scores all replies of a row; SPCT's rule: +1 if the best has strictly the highest score, else -1.

    An answer without a score for each reply is -1. There is no format reward (arXiv 2504.02495).
    """

    def __init__(self, source: Source, template: Template, low: int = 1, high: int = 10) -> None:
        super().__init__(source)
        self.template, self.low, self.high = template, low, high

    def asked(self, task: Task, replies: list[str], worth: list[float]) -> tuple[Question, dict[str, Any]]:
        data = [("request", prompt_shown(task.prompt)), *((f"reply {i + 1}", text) for i, text in enumerate(replies))]
        words = {"count": str(len(replies)), "low": str(self.low), "high": str(self.high)}
        return question(self.template, data, **words), {}

    def scores(self, task: Task, answer: str) -> list[float] | None:
        """The scores that an answer gives, in the order shown."""
        return read.brief_scores(answer, len(task.given[WORTH]), self.low, self.high)

    def rule(self, task: Task, answer: str) -> Verdict:
        worth, scores = list(task.given[WORTH]), self.scores(task, answer)
        if scores is None:
            return Verdict(-1.0, False, "the answer does not end with a score for each reply")
        right = vote.best_is_strictly_first(scores, worth.index(max(worth)))
        return Verdict(1.0, True) if right else Verdict(-1.0, False, "the best reply does not have the highest score")


class RankedReplies(ScoredReplies):
    """The same questions with URPO's rule: Kendall's tau between the scores and the given order; -1 unread."""

    def rule(self, task: Task, answer: str) -> Verdict:
        worth, scores = list(task.given[WORTH]), self.scores(task, answer)
        if scores is None:
            return Verdict(-1.0, False, "the answer does not end with a score for each reply")
        tau = vote.kendall(scores, worth)
        return Verdict(tau, tau >= 1.0, "" if tau >= 1.0 else f"rank agreement {tau:.2f}")


class GradedPairs(JudgeTasks):
    """The judge compares two replies on -3 ... 3 without 0 (negative: A is better); Think-RM's rule.

    With a column `strength` (1 to 3) of the row: 1 for the exact label, 1/2 for its sign alone, else 0. Without it the
    binary variant: 1 for the sign. An answer that cannot be read is 0. Of ranked replies the best and the worst are
    compared.
    """

    def __init__(self, source: Source, template: Template) -> None:
        super().__init__(source)
        self.template = template
        self.gives |= {LABEL}

    def question_about(self, row: Task) -> Task:
        replies, worth = candidates(row)
        best, worst = worth.index(max(worth)), worth.index(min(worth))
        two = {"chosen": replies[best], "rejected": replies[worst], "responses": None}
        return super().question_about(replace(row, given={**row.given, **two}))

    def asked(self, task: Task, replies: list[str], worth: list[float]) -> tuple[Question, dict[str, Any]]:
        data = (("request", prompt_shown(task.prompt)), ("A", replies[0]), ("B", replies[1]))
        strength = task.given.get(STRENGTH)
        if strength is not None and strength not in (1, 2, 3):
            raise ValueError(f"task {task.key[:60]!r} has the strength {strength!r}; it must be 1, 2 or 3")
        return question(self.template, data), {LABEL: (1 if worth[1] > worth[0] else -1) * int(strength or 1)}

    def rule(self, task: Task, answer: str) -> Verdict:
        said, label = read.graded(answer), int(task.given[LABEL])
        if said is None:
            return Verdict(0.0, False, "the answer does not end with a verdict from -3 to 3 without 0")
        right = said * label > 0
        score = vote.graded_agreement(said, label) if task.given.get(STRENGTH) is not None else float(right)
        return Verdict(score, right, "" if right else "the verdict prefers the worse reply")


class VerdictDemos(GradedPairs):
    """Pairs in both orders with the letter of the better reply as demonstration: task 2i and 2i + 1 are row i."""

    def __init__(self, source: Source, template: Template) -> None:
        super().__init__(source, template)
        self.gives |= {"demo"}

    def size(self, split: str) -> int | None:
        size = self.source.size(split)
        return None if size is None else 2 * size

    def task(self, split: str, index: int) -> Task:
        row = self.source.task(split, index // 2)
        replies, worth = candidates(row)
        best, worst = replies[worth.index(max(worth))], replies[worth.index(min(worth))]
        first, second, letter = (best, worst, "A") if index % 2 == 0 else (worst, best, "B")
        data = (("request", prompt_shown(row.prompt)), ("A", first), ("B", second))
        asked = question(self.template, data)
        given = {**row.given, "demo": letter, LABEL: -1 if letter == "A" else 1}
        return Task("demo", ({"role": "user", "content": asked.text},), given, f"judge {asked.key[:12]} {row.key}")

    def rule(self, task: Task, answer: str) -> Verdict:
        right = read.letter(answer) == task.given["demo"]
        return Verdict(float(right), right, "" if right else "the letter of the worse reply, or none")
