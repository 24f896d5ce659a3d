"""`user`: the user of a robot, who at each step observes, or speaks: instructs, answers, corrects, thanks."""

from __future__ import annotations

import random
import re
import string
from typing import ClassVar

from burnish.core.splits import ByLevel
from burnish.core.task import Task, Verdict
from burnish.verifiers.answer_line import LONGEST_REPLY

_GOALS = {1: 2, 2: 3, 3: 4, 4: 6}  # things to do, by level
_THINGS = ("cup", "lamp", "knife", "bread", "towel", "plate", "egg", "book", "clock", "spoon", "bowl", "pan")
ACTS = ("instruct", "answer", "correct", "thank")
_SPEAK = re.compile(r"SPEAK\((\w{1,20})\)(?::\s*(.{0,400}))?", re.DOTALL)

Said = tuple[str, str]  # dialogue act ("" to observe), words


def write_said(said: Said) -> str:
    """OBSERVE, or SPEAK(act): words."""
    act, words = said
    return f"SPEAK({act}): {words}" if act else "OBSERVE"


def read_said(reply: str) -> Said | None:
    """What a user's reply says; None where it neither observes nor speaks."""
    text = reply[-LONGEST_REPLY:].strip()
    if text == "OBSERVE":
        return "", ""
    found = _SPEAK.fullmatch(text)
    return (found[1], (found[2] or "").strip()) if found else None


def next_said(goals: list[str], history: list[str]) -> Said:
    """What the user says after a history of lines: the rule that the data follow.

    The robot's question is answered, its mistake corrected, the next thing named when it has done one, and the end
    thanked for; while it works the user observes.
    """
    done = [line.split()[1] for line in history if line.endswith(" done") and line.split()[1] in goals]
    left = [goal for goal in goals if goal not in done]
    last = history[-1] if history else "robot: waits"
    if not left:
        return "thank", "thanks"
    if last.endswith("?"):
        return "answer", left[0]
    if last.endswith(" done"):
        return ("instruct", left[0]) if last.split()[1] in goals else ("correct", left[0])
    return ("instruct", left[0]) if last == "robot: waits" else ("", "")


class User(ByLevel):
    """2, 3, 4 or 6 things to do, in order, by level; level 1 names them by letters.

    A task is one step of a dialogue: the goal, and what user and robot said and did so far.
    """

    name: ClassVar[str] = "user"
    summary: ClassVar[str] = "be the user of a robot: observe, or speak with a dialogue act"
    gives: ClassVar[frozenset[str]] = frozenset({"answer", "demo", "mistake"})

    def task(self, split: str, index: int) -> Task:
        goals, history = self.drawn(split, index, self._draw, lambda drawn: f"{self.name} {drawn[0]} {drawn[1]}")
        said = next_said(goals, history)
        wrong = ("", "") if said[0] else ("instruct", goals[0])
        given = {"answer": write_said(said), "demo": write_said(said), "mistake": write_said(wrong), "said": said}
        asked = "\n".join([f"Goal: {' '.join(goals)}", *history])
        return Task("question", ({"role": "user", "content": asked},), given, f"{self.name} {goals} {history}")

    def _draw(self, dice: random.Random) -> tuple[list[str], list[str]]:
        """A goal, and the lines of a dialogue up to a random step."""
        things = list(string.ascii_lowercase) if self.level == 1 else list(_THINGS)
        goals = dice.sample(things, _GOALS[self.level])
        others = [thing for thing in things if thing not in goals]
        history: list[str] = []
        for _ in range(dice.randint(0, 3 * len(goals))):
            act, words = next_said(goals, history)
            if act == "thank":
                break
            if act:
                history.append(f"user: {words}")
            left = [goal for goal in goals if f"robot: {goal} done" not in history]
            moves = ["robot: works", f"robot: {left[0]} done", "robot: what?", f"robot: {dice.choice(others)} done"]
            history.append(dice.choices(moves, (4, 4, 1, 1))[0])
        return goals, history

    def facts(self, task: Task) -> Said:
        """What the user said."""
        act, words = task.given["said"]
        return act, words

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.verdict(self.facts(task), reply)

    def verdict(self, right: Said, reply: str) -> Verdict:
        """1 for the same decision, act and words; half for the same act with other words."""
        said = read_said(reply)
        if said is None:
            return Verdict(0.0, False, "it is neither OBSERVE nor SPEAK(act): words")
        if said[0] != right[0]:
            return Verdict(0.0, False, f"the user says {write_said(right)}")
        if said[1].casefold() == right[1].casefold():
            return Verdict(1.0, True)
        return Verdict(0.5, False, f"the user says {write_said(right)}")
