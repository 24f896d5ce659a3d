"""`speak`: say letters as codes of speech in the voice of a speaker, or write down what is said.

A letter is two codes; a speaker's codes are shifted, so the same letter sounds different from each.
"""

from __future__ import annotations

import random

from burnish.tasks.codes.code import read, written
from burnish.tasks.family import Family
from burnish.verifiers.answer_line import format_reply

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXY"
SPEAKERS = ("Ann", "Bob")
_FIVE = 5
Line = tuple[str, int, bool]  # letters, speaker, whether it is to be said (or written down)


def spoken(letters: str, speaker: int) -> list[int]:
    """Two codes of 0-9 and 10-19 for each letter."""
    codes: list[int] = []
    for letter in letters:
        high, low = divmod(LETTERS.index(letter), _FIVE)
        codes += [high + _FIVE * speaker, 2 * _FIVE + low + _FIVE * speaker]
    return codes


class Speak(Family):
    """2, 3, 4 or 6 letters by level, said or written down."""

    name = "speak"
    summary = "say letters as codes of speech, or write down what is said"

    def draw(self, dice: random.Random) -> Line:
        many = (2, 3, 4, 6)[self.level - 1]
        return "".join(dice.choices(LETTERS, k=many)), dice.randrange(len(SPEAKERS)), dice.random() < 0.5

    def identity(self, problem: Line) -> str:
        return " ".join(map(str, problem))

    def ask(self, problem: Line) -> str:
        letters, speaker, say = problem
        return f"Say {letters} as {SPEAKERS[speaker]}." if say else f"Write {written('s', spoken(letters, speaker))}"

    def answer(self, problem: Line) -> str:
        letters, speaker, say = problem
        return written("s", spoken(letters, speaker)) if say else letters

    def solve(self, problem: Line, dice: random.Random) -> str:
        return format_reply(self.answer(problem))

    def blunder(self, problem: Line, dice: random.Random) -> str:
        """A letter left out or taken for another, or the other speaker's voice."""
        letters, speaker, say = problem
        at, slip = dice.randrange(len(letters)), dice.randrange(3)
        if slip == 0:
            letters = letters[:at] + letters[at + 1 :]
        elif slip == 1:
            letters = letters[:at] + dice.choice(LETTERS) + letters[at + 1 :]
        elif say:
            speaker = 1 - speaker
        return format_reply(self.answer((letters, speaker, say)))

    def judge(self, problem: Line, said: str) -> str:
        right = self.answer(problem)
        if problem[2] and read("s", said) is None:
            return f"speech is codes such as <s3>, not {said[:40]!r}"
        return "" if said == right else f"the answer is {right}, not {said[:60]!r}"
