"""`twenty_questions`: find a hidden item by asking which letters belong to it.

The one who answers is the seat `user`. The environment plays it, unless a model does: a user simulator.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from itertools import combinations

from burnish.core.messages import Message
from burnish.envs.games.game import Game, GameFamily
from burnish.envs.protocol import Observed, Outcome

_SHAPE = {1: (4, "abcd", 3), 2: (8, "abcde", 4), 3: (14, "abcdef", 5)}  # items, letters, turns
SYSTEM = "You think of an item. Answer yes or no."


@dataclass(frozen=True)
class Items:
    """Letters of each item, in the order of their names A, B, ...; the one that is thought of; the turns."""

    letters: tuple[str, ...]
    hidden: int
    turns: int


class Questions(Game):
    """An action is a letter (a question) or the name of an item (the answer). Reward 1 for the right item."""

    seats = ("player", "user")

    def __init__(self, position: Items) -> None:
        super().__init__(position)
        self.named = {chr(ord("A") + i): letters for i, letters in enumerate(position.letters)}
        self.hidden = chr(ord("A") + position.hidden)
        self.left = list(self.named)
        self.seated, self.asked = False, ""
        self.told = False  # whether the user has been told the item

    def reset(self, seated: bool = False) -> str | tuple[Message, ...]:
        self.seated = seated
        return super().reset()

    def opening(self) -> str:
        self.left, self.asked, self.told = list(self.named), "", False
        items = ", ".join(f"{name} {letters}" for name, letters in self.named.items())
        return f"Which item? {items}. Ask a letter or name it. {self.position.turns} turns."

    def seat(self) -> str:
        return "user" if self.asked else "player"

    def act(self, action: str) -> Outcome:
        if self.asked:
            return self._answered(action)
        said = (re.findall(r"\b[A-Za-z]\b", action) or [""])[-1]
        over = self._turns_made() >= self.position.turns
        if said == self.hidden:
            return Outcome("correct", 1.0, terminated=True)
        if said in self.named:
            self.left = [name for name in self.left if name != said]
            return Outcome("wrong", 0.0, terminated=over)
        if not said.islower():
            return Outcome("say a letter or an item", 0.0, terminated=over)
        if over:
            return Outcome("no turns left", 0.0, terminated=True)
        if self.seated:
            self.asked = said
            return Outcome(self._question(), 0.0)
        return Outcome(self._learn(said, said in self.named[self.hidden]), 0.0)

    def expert(self) -> str:
        """The letter that halves the items that are left, or the item."""
        if self.asked:
            return "yes" if self.asked in self.named[self.hidden] else "no"
        letters = sorted({letter for name in self.left for letter in self.named[name]})
        parts = {letter: sum(letter in self.named[name] for name in self.left) for letter in letters}
        uneven = {letter: abs(2 * size - len(self.left)) for letter, size in parts.items() if size < len(self.left)}
        return min(uneven, key=lambda letter: uneven[letter]) if len(self.left) > 1 and uneven else self.left[0]

    def key(self) -> str:
        return f"{''.join(self.left)} after {self._turns_made()}"

    def _question(self) -> Observed:
        if self.told:
            return f"{self.asked}?"
        self.told = True
        told = f"Your item: {self.named[self.hidden]}. {self.asked}?"
        return ({"role": "system", "content": SYSTEM}, {"role": "user", "content": told})

    def _answered(self, action: str) -> Outcome:
        letter, self.asked = self.asked, ""
        self.made -= 1  # the user's reply is no turn of the player
        said = re.findall(r"\b(yes|no)\b", action.lower())
        return Outcome(self._learn(letter, said[-1] == "yes") if said else "no answer", 0.0)

    def _learn(self, letter: str, has: bool) -> str:
        kept = [name for name in self.left if (letter in self.named[name]) == has]
        self.left = kept or self.left  # a user may contradict itself
        return "yes" if has else "no"

    def _turns_made(self) -> int:
        return self.made


class TwentyQuestions(GameFamily):
    """4, 8 or 14 items by level, and 3, 4 or 5 turns: just enough to halve the items and name one."""

    name = "twenty_questions"
    summary = "find an item by yes/no questions (several turns; a model can answer them)"
    game = Questions

    def draw(self, dice: random.Random) -> Items:
        many, alphabet, turns = _SHAPE[self.level]
        sets = ["".join(letters) for size in range(1, len(alphabet)) for letters in combinations(alphabet, size)]
        while True:
            position = Items(tuple(dice.sample(sets, many)), dice.randrange(many), turns)
            if _solved(position):
                return position


def _solved(position: Items) -> bool:
    """Whether halving finds the item in time."""
    game = Questions(position)
    game.reset()
    while True:
        found = game.step(game.expert())
        if found.over:
            return found.reward == 1.0
