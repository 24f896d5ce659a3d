"""`wordle`: find the hidden word of a list from marks on the letters of each guess."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass

from burnish.envs.games.game import Game, GameFamily
from burnish.envs.protocol import Outcome

_SHAPE = {
    0: ("abcdef", 2, 4, 3),
    1: ("abcde", 3, 6, 3),
    2: ("abcdef", 4, 8, 3),
    3: ("abcdefgh", 5, 14, 3),
}  # alphabet, letters, words, guesses


def marks(guess: str, hidden: str) -> str:
    """One mark for each letter: = at its place, + elsewhere in the word, - not in it (a letter counts as often as the
    word has it, those at their places first).
    """
    left = Counter(h for g, h in zip(guess, hidden, strict=True) if g != h)
    found = []
    for g, h in zip(guess, hidden, strict=True):
        if g == h:
            found.append("=")
        elif left[g]:
            left[g] -= 1
            found.append("+")
        else:
            found.append("-")
    return "".join(found)


@dataclass(frozen=True)
class Words:
    """A list of words of one length, the hidden one, and the guesses."""

    words: tuple[str, ...]
    hidden: str
    guesses: int


class Spelling(Game):
    """Reward 1 for the hidden word. Words that are not in the list cost a guess. The state: words left, guesses."""

    def __init__(self, position: Words) -> None:
        super().__init__(position)
        self.left = list(position.words)

    def opening(self) -> str:
        self.left = list(self.position.words)
        return f"Guess my word: {' '.join(self.position.words)}. {self.position.guesses} guesses."

    def act(self, action: str) -> Outcome:
        said = (re.findall(r"[a-z]+", action.lower()) or [""])[-1]
        if said == self.position.hidden:
            return Outcome("correct", 1.0, terminated=True)
        over = self.made >= self.position.guesses
        if said not in self.position.words:
            return Outcome("not in the list", 0.0, terminated=over)
        seen = marks(said, self.position.hidden)
        self.left = [word for word in self.left if word != said and marks(said, word) == seen]
        return Outcome(f"{said} {seen}", 0.0, terminated=over)

    def expert(self) -> str:
        """The word that leaves the fewest words in the worst case, of those that are still possible."""
        return min(self.left, key=lambda guess: max(Counter(marks(guess, word) for word in self.left).values()))

    def key(self) -> str:
        return f"{' '.join(self.left)} after {self.made}"


class Wordle(GameFamily):
    """4, 6, 8 or 14 words of 2, 3, 4 or 5 letters by level, 3 guesses; every list is solved by halving it."""

    name = "wordle"
    summary = "find a hidden word of a list from marks on letters (several turns)"
    game = Spelling
    levels = (0, 1, 2, 3)

    def draw(self, dice: random.Random) -> Words:
        alphabet, letters, many, guesses = _SHAPE[self.level]
        while True:
            words: set[str] = set()
            while len(words) < many:
                words.add("".join(dice.choices(alphabet, k=letters)))
            listed = sorted(words)  # the order of a set differs between processes
            position = Words(tuple(dice.sample(listed, many)), dice.choice(listed), guesses)
            if _solved(position):
                return position


def _solved(position: Words) -> bool:
    """Whether the expert finds the word."""
    game = Spelling(position)
    game.reset()
    while True:
        found = game.step(game.expert())
        if found.over:
            return found.reward == 1.0
