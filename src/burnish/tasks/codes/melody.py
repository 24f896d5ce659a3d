"""`melody`: write notes that keep to a key and a contour and end on the tonic. <n0> is the lowest C, <n12> the next."""

from __future__ import annotations

import random
from itertools import pairwise

from burnish.tasks.codes.code import MANY, read, written
from burnish.tasks.family import Family
from burnish.verifiers.answer_line import format_reply

KEYS = {"C": 0, "D": 2, "F": 5, "G": 7, "A": 9}
MAJOR = (0, 2, 4, 5, 7, 9, 11)
CONTOURS = ("rising", "falling", "arched")
Wish = tuple[str, str, int, int]  # key, contour, notes, a number that tells equal wishes apart


def scale(key: str) -> list[int]:
    """The notes of a major key, lowest first."""
    return [note for note in range(MANY["n"]) if (note - KEYS[key]) % 12 in MAJOR]


def faults(wish: Wish, notes: list[int]) -> list[str]:
    """What is wrong with a melody: its length, its key, its end, its contour, repeated notes."""
    key, contour, many, _ = wish
    steps = [b - a for a, b in pairwise(notes)]
    turn = len(steps) // 2
    bent = {
        "rising": all(step > 0 for step in steps),
        "falling": all(step < 0 for step in steps),
        "arched": all(step > 0 for step in steps[:turn]) and all(step < 0 for step in steps[turn:]),
    }
    wrong = [f"it has {len(notes)} notes, not {many}"] if len(notes) != many else []
    wrong += [f"<n{note}> is not in {key}" for note in notes if (note - KEYS[key]) % 12 not in MAJOR][:1]
    wrong += ["it does not end on the tonic"] if (notes[-1] - KEYS[key]) % 12 else []
    return wrong + ([] if bent[contour] else [f"it is not {contour}"])


class Melody(Family):
    """4, 5, 6 or 8 notes by level; rising, falling or arched; the last one is the tonic."""

    name = "melody"
    summary = "write a melody in a key with a given contour, as notes"

    def draw(self, dice: random.Random) -> Wish:
        return dice.choice([*KEYS]), dice.choice(CONTOURS), (4, 5, 6, 8)[self.level - 1], dice.randrange(1 << 20)

    def identity(self, problem: Wish) -> str:
        return " ".join(map(str, problem))

    def ask(self, problem: Wish) -> str:
        key, contour, many, _ = problem
        return f"In {key}, {many} notes, {contour}."

    def composed(self, problem: Wish, dice: random.Random) -> list[int]:
        """Notes of the scale by steps of one to three of it, backwards from the tonic."""
        key, contour, many, _ = problem
        notes = scale(key)
        turn = (many - 1) // 2
        signs = {"rising": [1] * (many - 1), "falling": [-1] * (many - 1)}
        signs["arched"] = [1] * turn + [-1] * (many - 1 - turn)
        while True:
            at = dice.choice([i for i, note in enumerate(notes) if (note - KEYS[key]) % 12 == 0])
            path = [at]
            for sign in reversed(signs[contour]):
                path.append(path[-1] - sign * dice.randint(1, 2 if many > 6 else 3))
            if min(path) >= 0 and max(path) < len(notes):
                return [notes[i] for i in reversed(path)]

    def answer(self, problem: Wish) -> str:
        return written("n", self.composed(problem, random.Random(problem[3])))

    def solve(self, problem: Wish, dice: random.Random) -> str:
        return format_reply(written("n", self.composed(problem, dice)))

    def blunder(self, problem: Wish, dice: random.Random) -> str:
        """A note out of key, another end, another contour, or a note too few."""
        key, _, many, number = problem
        notes, slip = self.composed(problem, dice), dice.randrange(4)
        if slip == 0:
            at = dice.randrange(len(notes))
            notes[at] = min(MANY["n"] - 1, max(0, notes[at] + dice.choice((-1, 1))))
        elif slip == 1:
            notes[-1] = dice.choice(scale(key))
        elif slip == 2:
            notes = self.composed((key, dice.choice(CONTOURS), many, number), dice)
        else:
            del notes[dice.randrange(len(notes))]
        return format_reply(written("n", notes))

    def judge(self, problem: Wish, said: str) -> str:
        notes = read("n", said)
        if notes is None:
            return f"a melody is notes such as <n12>, not {said[:40]!r}"
        return "; ".join(faults(problem, notes))
